// A process of the program: writes what its case says through the real session.
#pragma once

#include <memory>
#include <string>

#include "capture/dataset.h"
#include "faults/ledger.h"

namespace advectio::faults {

inline constexpr int gave_up = 3;

class WriterProcess {
 public:
  /// `dies_at_step`: it kills itself there; 0: it does not.
  WriterProcess(const Case& c, Ledger& ledger, std::uint32_t me, std::string output, std::uint32_t dies_at_step)
      : case_(c), ledger_(ledger), me_(me), output_(std::move(output)), dies_at_step_(dies_at_step) {}

  /// The exit code.
  int run();

 private:
  void step();
  bool accepted(const Result<void>& done);
  std::unique_ptr<CapturedDataset> begin(Session& session, std::size_t i);
  std::unique_ptr<SharedDataset> invite(Session& session, std::size_t i, const CreateRequest& request);
  std::unique_ptr<SharedDataset> join(Session& session, std::size_t i);
  void await_all(const Ledger::Meeting& m) const;
  [[nodiscard]] bool anybody_gone() const;
  template <typename T>
  static Result<void> put_scattered(CapturedDataset& dataset, bool tile, std::uint32_t variable, const Box& box,
                                    const std::vector<T>& data);
  template <typename Value>
  bool put(CapturedDataset& dataset, bool tile, std::uint32_t variable, const Box& box, const Value& value);
  bool put_rows(CapturedDataset& dataset, std::size_t i, std::uint64_t f, const Area& rows, const Area& file);
  bool frame(CapturedDataset& dataset, SharedDataset* together, std::size_t i, std::uint64_t f);

  const Case& case_;
  Ledger& ledger_;
  std::uint32_t me_;
  std::string output_;
  std::uint32_t dies_at_step_, steps_ = 0;
};

}  // namespace advectio::faults
