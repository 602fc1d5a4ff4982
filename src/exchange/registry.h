// The registry of a workflow (workflow/README.md) on one node, kept the same as those of the other nodes: what changes
// here is told to them, and what they tell is made to be seen here. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "platform/log.h"
#include "readers/message.h"

namespace advectio::exchange {

/// Of a small file; none where it cannot be read.
std::optional<std::string> text_of(const std::string& path);

class Registry {
 public:
  /// What becomes of this node's own part; in the order in which it has happened.
  using Tell = std::function<void(nlohmann::json event)>;
  /// A process of this node wants a version of another one.
  using Want = std::function<void(const std::string& path, const std::string& version, const std::string& entry)>;
  /// `memory`: its directory. `node`: the name of this node.
  Registry(std::string memory, std::string node, Tell tell, Want want, Log& log);

  /// Looks at what is there, and follows it from then on.
  Result<void> begin();
  /// Readable when something has changed.
  [[nodiscard]] int descriptor() const { return watch_.get(); }
  /// Tells of all that has changed.
  void look();

  /// All of this node's own part.
  [[nodiscard]] std::vector<nlohmann::json> whole() const;
  /// What another node has told.
  void take(const std::string& node, const nlohmann::json& event);
  /// All of another node's own part; what it does not name has gone.
  void take_whole(const std::string& node, const std::vector<nlohmann::json>& events);
  /// That node is not there any more. Its programs are dead, and do not write or wait; its versions cannot be fetched.
  void lose(const std::string& node);

  struct Version {
    std::string name;  ///< empty: there is none
    std::string node;  ///< where its bytes are; empty: here
    std::uint64_t bytes = 0;
    std::string link;  ///< it is this file on the disk
    bool operator==(const Version&) const = default;
  };
  /// The newest of a coupled file.
  [[nodiscard]] Version newest(const std::string& path) const;
  [[nodiscard]] std::string directory_of(const std::string& path) const { return memory_ + "/files" + path; }

  [[nodiscard]] bool anybody_alive(bool here) const;
  /// A version that a program may still read, whose bytes are not lost.
  [[nodiscard]] bool anything_unread() const;

 private:
  struct File {
    Version newest;
    std::map<std::string, std::string> texts;  ///< `readers`, `trouble`, `read.NAME`: as all know them
    std::set<std::string> writing;             ///< entries of this node's processes
  };
  struct Member {
    std::string text;
    bool alive = false;
    bool operator==(const Member&) const = default;
  };
  struct OtherMember {
    std::string node, text;
    readers::Descriptor lock;  ///< held as long as it lives
  };
  void read_events();
  void follow(const std::string& path);
  void appeared(const std::string& path, const std::string& name);
  void disappeared(const std::string& path, const std::string& name);
  void look_at_members();
  void take_version(const std::string& node, const std::string& path, const nlohmann::json& event);
  void take_member(const std::string& node, const nlohmann::json& event);
  void take_text(const std::string& path, const nlohmann::json& event);
  void take_wait(const std::string& node, const nlohmann::json& event);
  void clean_up_after(const std::string& entry) const;
  void put(const std::string& path, const std::string& text) const;
  [[nodiscard]] std::string files() const { return memory_ + "/files"; }

  const std::string memory_, node_;
  const Tell tell_;
  const Want want_;
  Log& log_;
  readers::Descriptor watch_;
  std::map<int, std::string> watched_;  ///< by the number of the watch: path below `files`, or `waits`
  int waits_watch_ = -1;
  std::map<std::string, File> files_;
  std::map<std::string, Member> members_;
  std::map<std::string, OtherMember> others_;
  std::map<std::string, std::string> waits_;
  std::set<std::string> lost_;
};

}  // namespace advectio::exchange
