// The frames that readers may have. The server's loop publishes a frame when it comes to the
// program's sync of it, before the frame is in the file; readers subscribe, take frames, and are done with them. Any
// thread may call any function.
//
//  * A frame has an *order*: 1, 2, 3 … over all datasets of the run, in the order of their syncs.
//    Orders are kept in a file of the run directory: a server that takes over knows them, so that a
//    reader goes on behind the last frame that it has had.
//  * A frame is in memory while a subscription or a reader holds it. It takes no memory of its own: its
//    fields hold leases on the stage. Where nobody subscribes, nothing is held.
//  * Memory is bounded: frames that are in their files already are held for readers up to
//    `memory_max` bytes. Beyond that the oldest that nobody has taken leave the memory; their readers
//    find them in the file.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/field.h"
#include "core/schema.h"
#include "readers/message.h"
#include "readers/request.h"

namespace advectio::readers {

/// Memory that a reader of this node may map: a segment of the stage.
struct Region {
  std::uint64_t id = 0;
  const std::byte* begin = nullptr;
  std::uint64_t bytes = 0;
  Descriptor descriptor;
  Lease lease;
};

/// The fields of one frame, in memory. Never changes.
struct LiveFrame {
  std::shared_ptr<const Schema> schema;
  std::map<std::uint32_t, std::shared_ptr<const AssembledField>> fields;  ///< by variable
  std::vector<std::shared_ptr<const Region>> regions;                     ///< by `begin`
  std::uint64_t schema_id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t synced_ns = 0;

  /// So far its fields reach along the dimension.
  [[nodiscard]] std::uint64_t length(std::uint32_t dimension) const;
  /// The region that holds these bytes; null: none does.
  [[nodiscard]] const Region* region_of(const std::byte* data, std::uint64_t size) const;
};

/// Records of a frame along the first unlimited dimension; none: not known.
using Records = std::optional<std::pair<std::uint64_t, std::uint64_t>>;

/// A dataset as a program has created it.
struct DatasetKey {
  std::uint64_t journal = 0;
  std::uint32_t number = 0;
  auto operator<=>(const DatasetKey&) const = default;
};

/// A frame that a reader has taken.
struct TakenFrame {
  std::uint64_t order = 0, dataset = 0, number = 0;
  std::string path;
  std::uint64_t inode = 0;                ///< of the file, also where it was renamed; 0: not known
  Records records;                        ///< first, and the one behind the last
  std::uint64_t left_out = 0;             ///< frames of this subscription since the one before
  std::shared_ptr<const LiveFrame> live;  ///< null: it is in the file
};

/// Who shall be told that there is something new: an eventfd.
using Waker = int;

class FrameStore {
 public:
  /// `log`: the file of orders; what it holds is taken up. Empty: none. Errors of the system.
  static Result<std::unique_ptr<FrameStore>> open(const std::string& log, std::uint64_t memory_max);

  // What the server's loop says.

  /// Somebody has subscribed to files of that name.
  [[nodiscard]] bool is_wanted(const std::string& path);
  /// The same of a dataset that has had a frame, under any of its names.
  [[nodiscard]] bool is_wanted(DatasetKey key);
  /// Frame `number` (from 0) of the dataset has been synced. Again after a failure or a restart: then
  /// it has the order of before. Without `live` it can only be had from the file. `inode`: of the file; 0: not known.
  void publish(DatasetKey key, const std::string& path, FileFormat format, std::uint64_t number, Records records,
               std::shared_ptr<LiveFrame> live, std::uint64_t inode = 0);
  /// The program has renamed the file. It goes on under both names: who has subscribed to the new one alone gets all
  /// its frames, under that name.
  void rename(DatasetKey key, const std::string& path);
  /// The file is being changed from here on, or has been.
  void note_commit(DatasetKey key, bool begins);
  /// So many frames are in the file.
  void set_visible(DatasetKey key, std::uint64_t frames);
  /// So many frames are on the disk; `all`: so is the complete file.
  void set_durable(DatasetKey key, std::uint64_t frames, bool all);
  /// Known from a server before, and in flight again.
  void take_up(DatasetKey key, std::uint64_t visible);
  /// The dataset has ended, with so many frames in its file.
  void set_over(DatasetKey key, std::uint64_t visible);
  /// Nothing more will come. Readers are told.
  void end();
  [[nodiscard]] bool ended();

  // What readers do.

  class Subscription;
  std::shared_ptr<Subscription> subscribe(const Request& request, Waker waker);
  void unsubscribe(const std::shared_ptr<Subscription>& subscription, Waker waker);
  /// Order of the frame before the first that the subscription will give.
  [[nodiscard]] std::uint64_t before(Subscription& subscription);
  /// The next frame of the subscription. Nothing: none is there yet. `in_memory`: the reader may hold
  /// one more frame in memory.
  std::optional<TakenFrame> take(Subscription& subscription, bool in_memory);
  /// A reader of a group has gone and was not done with it: another one gets it.
  void put_back(Subscription& subscription, const TakenFrame& frame);
  /// Frames that wait in the subscription.
  [[nodiscard]] std::size_t waiting(Subscription& subscription);
  /// Nothing is left, and nothing more will come.
  [[nodiscard]] bool is_at_end(Subscription& subscription);
  /// All that is left, for readers to find in the files.
  std::vector<TakenFrame> take_rest(Subscription& subscription);

  /// Datasets whose files match: PROTOCOL.md, `list`.
  nlohmann::json list(const std::vector<std::string>& match);
  std::shared_ptr<const Schema> schema(std::uint64_t id);
  /// A reader with a subscription has come, or has gone. `name`: what it calls itself (PROTOCOL.md,
  /// `reader`), or empty. Kept with the orders: a server that takes over knows who will come again.
  void note_reader(const std::string& name, bool comes);
  /// The server before had readers when it ended.
  [[nodiscard]] bool had_readers() const { return had_readers_; }
  /// All readers of the server before have come again: by their names, and as many as had none.
  [[nodiscard]] bool readers_are_back();
  /// Bytes of frames that are in their files, and are held for readers.
  [[nodiscard]] std::uint64_t held_bytes();

  ~FrameStore();
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

 private:
  FrameStore() = default;
  struct Dataset;
  struct Entry {
    std::uint64_t order = 0;
    std::shared_ptr<const LiveFrame> live;
  };
  void take_log(const std::string& text);
  void append(const nlohmann::json& line);
  void count_away(const std::string& name, std::int64_t more);
  std::size_t dataset_of(DatasetKey key, const std::string& path, FileFormat format);
  std::size_t add_name(std::size_t dataset, const std::string& path);
  std::size_t latest_name(std::size_t dataset) const;
  void add_frame(std::size_t dataset, std::uint64_t number, Records records,
                 const std::shared_ptr<const LiveFrame>& live);
  [[nodiscard]] bool wants(const Subscription& s, std::size_t dataset) const;
  [[nodiscard]] bool wants(const std::vector<std::string>& match, std::size_t dataset) const;
  /// Of the dataset, under each of its names.
  template <typename Do>
  void under_each_name(DatasetKey key, Do&& act);
  void wake_who_waits_for(std::size_t dataset);
  void enter(Subscription& s, Entry entry);
  void limit_memory();
  std::uint64_t held_now();
  [[nodiscard]] bool is_committed(std::uint64_t order) const;
  TakenFrame taken(const Entry& entry) const;

  std::mutex mutex_;
  int log_ = -1;
  std::uint64_t memory_max_ = 0;
  std::vector<Dataset> datasets_;
  std::map<DatasetKey, std::size_t> by_key_;
  struct Place {
    std::size_t dataset = 0;
    std::uint64_t number = 0;
    Records records;
    std::weak_ptr<const LiveFrame> live;
  };
  std::vector<Place> places_;            ///< by order - 1
  std::set<std::uint64_t> live_orders_;  ///< of frames that are or were in memory
  std::set<std::shared_ptr<Subscription>> subscriptions_;
  std::vector<std::shared_ptr<const Schema>> schemas_;  ///< by id - 1
  std::map<std::string, std::int64_t> away_;            ///< readers of the server before, by name; how many of each
  bool had_readers_ = false;
  bool ended_ = false;
};

/// What one reader, or a group, wants.
class FrameStore::Subscription {
 public:
  std::vector<std::string> match;
  Policy policy = Policy::wait;
  std::uint64_t depth = 2;
  std::string group;

 private:
  friend class FrameStore;
  std::deque<Entry> queue_;
  std::uint64_t left_out_ = 0;
  std::multiset<Waker> wakers_;
};

/// True when a pattern of the list matches: as the config's `match`, and also where it matches the path that has
/// neither `..` nor symbolic links in its directories.
bool matches_any(const std::vector<std::string>& patterns, const std::string& path);

}  // namespace advectio::readers
