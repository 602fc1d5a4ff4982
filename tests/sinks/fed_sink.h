// A sink fed with blocks, as the server feeds it: they become fields of a frame, and the sink is
// told of each part.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/field.h"
#include "operators/operated_field.h"
#include "sinks/sink.h"

namespace advectio::testing {

class FedSink {
 public:
  /// `frames`: that the dataset has had before.
  explicit FedSink(std::unique_ptr<Sink> sink, std::uint64_t frames = 0) : sink_(std::move(sink)), number_(frames) {}
  ~FedSink() { sink_.reset(); }  // before the fields
  FedSink(const FedSink&) = delete;
  FedSink& operator=(const FedSink&) = delete;

  Result<void> declare(const Schema& schema, std::shared_ptr<const Operators> operators = nullptr) {
    frame_.declare(schema);
    operators_ = std::move(operators);
    return sink_->declare(schema);
  }
  Result<void> write(const Block& block) {
    if (!std::exchange(begun_, true)) ADVECTIO_TRY(sink_->begin(++number_));
    auto field = frame_.add(block);
    if (!field) return std::move(field).error();
    Part part{block.box, block.stride};
    part.layout = block.layout;
    return sink_->ready(operated(std::move(field).value(), operators_), part);
  }
  /// The same, as a put of many boxes: the elements of even numbers, then the others. Numbers only.
  Result<void> write_scattered(const Block& block, std::size_t element) {
    const auto volume = block.box.volume();
    if (block.box.rank() == 0 || volume < 2 || !block.stride.empty()) return write(block);
    BoxList boxes(block.box.rank());
    auto& data = scattered_.emplace_back();
    std::vector<std::uint64_t> start(block.box.rank());
    const std::vector<std::uint64_t> count(block.box.rank(), 1);
    for (const std::uint64_t odd : {0, 1})
      for (auto i = odd; i < volume; i += 2) {
        auto rest = i;
        for (auto d = start.size(); d-- > 0;) {
          start[d] = rest % block.box.count[d];
          rest /= block.box.count[d];
        }
        boxes.add(start, count);
        data.insert(data.end(), block.data + i * element, block.data + (i + 1) * element);
      }
    auto layout = BoxLayout::make(block.box.count, boxes);
    if (!layout) return std::move(layout).error();
    auto scattered = block;
    scattered.data = data.data();
    scattered.layout = std::move(layout).value();
    return write(scattered);
  }
  /// Every other time in three calls.
  Result<void> commit() {
    if (std::exchange(seals_, !seals_)) ADVECTIO_TRY(seal());
    auto done = sink_->end();
    begun_ = false;
    frame_.clear();
    return done;
  }
  /// The dataset has had so many frames before the next one.
  void set_frames(std::uint64_t frames) { number_ = frames; }
  /// The frame has ended, and is committed with a later one.
  void wait_for_the_next() { begun_ = false; }
  Result<void> checkpoint() {
    if (std::exchange(seals_, !seals_)) ADVECTIO_TRY(seal());
    auto done = sink_->checkpoint();
    frame_.clear();
    return done;
  }
  std::function<Result<void>()> make_durable() { return sink_->make_durable(); }
  Result<void> close() {
    auto done = sink_->close();
    frame_.clear();
    return done;
  }
  void abandon() noexcept {
    sink_->abandon();
    frame_.clear();
  }
  [[nodiscard]] SinkCounters counters() const { return sink_->counters(); }
  Sink& sink() { return *sink_; }

 private:
  Result<void> seal() {
    ADVECTIO_TRY(sink_->seal());
    for (;;) {
      const auto sealed = sink_->advance();
      if (!sealed) return sealed.error();
      if (*sealed) return {};
      std::this_thread::yield();
    }
  }

  std::deque<Bytes> scattered_;  // what parts of it borrow
  Frame frame_;
  std::unique_ptr<Sink> sink_;
  std::shared_ptr<const Operators> operators_;
  std::uint64_t number_;
  bool begun_ = false, seals_ = true;
};

inline Result<std::unique_ptr<FedSink>> fed(Result<std::unique_ptr<Sink>> sink) {
  if (!sink) return std::move(sink).error();
  return std::make_unique<FedSink>(std::move(sink).value());
}

}  // namespace advectio::testing
