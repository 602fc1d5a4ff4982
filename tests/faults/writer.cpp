#include "faults/writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace advectio::faults {

int WriterProcess::run() {
  auto* session = Session::current();
  if (session == nullptr) return 99;
  std::vector<std::unique_ptr<CapturedDataset>> open(case_.datasets.size());
  for (std::uint32_t tick = 0; tick < case_.frames(); ++tick) {
    for (std::size_t i = 0; i < open.size(); ++i) {
      const auto& d = case_.datasets[i];
      if (!d.written_by(me_)) continue;
      step();
      if (tick == d.begins) open[i] = begin(*session, i);
      if (!open[i]) continue;
      auto* together = d.shared() ? static_cast<SharedDataset*>(open[i].get()) : nullptr;
      if (!frame(*open[i], together, i, tick - d.begins)) return gave_up;
      if (tick + 1 < d.begins + d.frames) continue;
      step();
      if (!accepted(open[i]->close())) return gave_up;
      if (d.unsynced) ledger_.part[i][me_].synced = d.frames;
      open[i].reset();
    }
    ::usleep(case_.pause_us);
  }
  step();
  session->finish();
  return 0;
}

void WriterProcess::step() {
  if (dies_at_step_ != 0 && ++steps_ == dies_at_step_) (void)::kill(::getpid(), SIGKILL);
}

/// Was it taken? A sink's error is told beside that.
bool WriterProcess::accepted(const Result<void>& done) {
  if (done) return true;
  ledger_.told[me_] = true;
  return done.error().message.find("journal the") == std::string::npos;
}

std::unique_ptr<CapturedDataset> WriterProcess::begin(Session& session, std::size_t i) {
  const auto& d = case_.datasets[i];
  const CreateRequest request{output_ + "/" + d.file_of(me_), d.format, false};
  std::unique_ptr<CapturedDataset> made;
  if (!d.shared()) {
    if (auto created = session.create(request)) made = std::move(created).value();
  } else {
    made = me_ == 0 ? invite(session, i, request) : join(session, i);
  }
  if (!made) {
    ledger_.told[me_] = true;
    return nullptr;
  }
  step();
  if ((!d.shared() || me_ == 0) && !made->schema(schema_of(d, me_, case_.writers))) {
    ledger_.told[me_] = true;
    return nullptr;
  }
  if (d.shared()) static_cast<SharedDataset&>(*made).end_collective_call();
  return made;
}

std::unique_ptr<SharedDataset> WriterProcess::invite(Session& session, std::size_t i, const CreateRequest& request) {
  auto& m = ledger_.meeting[i];
  Invitation told;
  auto made = session.create_shared(request, case_.writers, told);
  if (!made) {
    m.state = 2;
    return nullptr;
  }
  std::snprintf(m.shared_state, sizeof m.shared_state, "%s", told.shared_state.c_str());
  std::snprintf(m.path, sizeof m.path, "%s", told.path.c_str());
  std::snprintf(m.link, sizeof m.link, "%s", told.link.c_str());
  m.journal = told.journal;
  m.created_ns = told.created_ns;
  m.number = told.number;
  m.owner = told.owner;
  m.state = 1;
  await_all(m);
  return std::move(made).value();
}

std::unique_ptr<SharedDataset> WriterProcess::join(Session& session, std::size_t i) {
  auto& m = ledger_.meeting[i];
  while (m.state == 0 && !ledger_.gone[0]) ::usleep(100);
  if (m.state != 1) return nullptr;
  auto made = session.join({m.shared_state, m.path, m.link, case_.datasets[i].format, m.journal, m.number,
                            case_.writers, m.owner, m.created_ns},
                           me_);
  ++m.joined;
  await_all(m);
  return made ? std::move(made).value() : nullptr;
}

/// As ranks do, before any of them puts: see create_together in capture/ranks.cpp.
void WriterProcess::await_all(const Ledger::Meeting& m) const {
  while (m.joined < case_.writers - 1 && !anybody_gone()) ::usleep(100);
}

bool WriterProcess::anybody_gone() const {
  return std::any_of(std::begin(ledger_.gone), std::end(ledger_.gone), [](const auto& gone) { return gone.load(); });
}

/// First the last row, then the cells of odd numbers, then the others. Of a tile rows in place of cells: there each box
/// is a record.
template <typename T>
Result<void> WriterProcess::put_scattered(CapturedDataset& dataset, bool tile, std::uint32_t variable, const Box& box,
                                          const std::vector<T>& data) {
  BoxList boxes(box.rank());
  std::vector<T> values;
  auto at = box;
  std::fill(at.count.begin(), at.count.end(), 1);
  for (std::size_t k = 0; k < box.rank(); ++k) at.start[k] = box.start[k] + box.count[k] - 1;
  at.start.back() = box.start.back();
  at.count.back() = box.count.back();
  boxes.add(at.start, at.count);
  values.assign(data.end() - static_cast<std::ptrdiff_t>(box.count.back()), data.end());
  const auto cells = tile ? box.count.back() : 1;
  at.count.back() = cells;
  for (const std::uint64_t odd : {1, 0}) {
    for (std::uint64_t k = odd * cells; k < data.size(); k += 2 * cells) {
      auto rest = k;
      for (auto d = box.rank(); d-- > 0;) {
        at.start[d] = box.start[d] + rest % box.count[d];
        rest /= box.count[d];
      }
      boxes.add(at.start, at.count);
      values.insert(values.end(), &data[k], &data[k] + cells);
    }
  }
  const bool records = variable != 2;
  return dataset.put_boxes(variable, boxes, records, values.data(), sizeof(T));
}

/// `value`: of the cell of that number in the box.
template <typename Value>
bool WriterProcess::put(CapturedDataset& dataset, bool tile, std::uint32_t variable, const Box& box,
                        const Value& value) {
  using T = decltype(value(0));
  std::vector<T> data(box.volume());
  for (std::uint64_t k = 0; k < data.size(); ++k) data[k] = value(k);
  // Every other time as many boxes.
  const auto done = box.rank() > 1 && (variable + box.start[0]) % 2 == 1
                        ? put_scattered(dataset, tile, variable, box, data)
                        : dataset.put(variable, box, {}, {data.data(), {}}, sizeof(T));
  if (!done) ledger_.told[me_] = true;
  return done.ok();
}

/// Some rows of the domain into a file that holds `file` of it.
bool WriterProcess::put_rows(CapturedDataset& dataset, std::size_t i, std::uint64_t f, const Area& rows,
                             const Area& file) {
  const Box flat{{rows.y - file.y, rows.x - file.x}, {rows.ny, rows.nx}};
  const Box of_frame{{f, flat.start[0], flat.start[1]}, {1, rows.ny, rows.nx}};
  const auto cell = [&](std::uint64_t k) {
    return (rows.y + k / rows.nx) * case_.datasets[i].x + rows.x + k % rows.nx;
  };
  const bool tile = case_.datasets[i].tiled();
  return put(dataset, tile, 0, of_frame, [&](std::uint64_t k) { return value_t(i, f, cell(k)); }) &&
         (!has_u(f) || put(dataset, tile, 1, of_frame, [&](std::uint64_t k) { return value_u(i, f, cell(k)); })) &&
         (f > 0 || put(dataset, tile, 2, flat, [&](std::uint64_t k) { return value_h(i, cell(k)); }));
}

bool WriterProcess::frame(CapturedDataset& dataset, SharedDataset* together, std::size_t i, std::uint64_t f) {
  const auto& d = case_.datasets[i];
  auto& part = ledger_.part[i][me_];
  part.begun = static_cast<std::uint32_t>(f + 1);
  const auto file = d.held(me_, case_.writers);
  if (together != nullptr) together->begin_collective_call();
  // Of a tile its halo too.
  const auto all = d.tiled() ? file : d.own(me_, case_.writers);
  // What no tile owns alone all of them put.
  if ((!d.shared() || me_ == 0) &&
      !put(dataset, d.tiled(), 3, {{f}, {1}}, [&](std::uint64_t) { return value_s(i, f); }))
    return false;
  // In pieces, more or fewer.
  const auto rows = std::max<std::uint64_t>(1, all.ny / (1 + f % 3));
  for (auto y = all.y; y < all.y + all.ny; y += rows) {
    step();
    if (!put_rows(dataset, i, f, {y, all.x, std::min(rows, all.y + all.ny - y), all.nx}, file)) return false;
  }
  // All that comes before is in the journal, or told to the others by the collective index.
  if (d.unsynced) part.synced = static_cast<std::uint32_t>(f);
  if (together != nullptr) together->end_collective_call();
  if (d.unsynced) {
    ++ledger_.frames;
    return true;
  }
  step();
  const bool done = accepted(dataset.sync());
  if (together != nullptr) together->end_collective_call();
  if (!done) return false;
  part.synced = static_cast<std::uint32_t>(f + 1);
  ++ledger_.frames;
  return true;
}

}  // namespace advectio::faults
