#include "cluster/record_sender.h"

#include "cluster/messages.h"

namespace advectio {

using Lane = Transport::Lane;

void RecordSender::send(unsigned owner, const std::string& journal_name, const journal::WriterState& writer,
                        const journal::Record& record) {
  auto [at, fresh] = numbers_.try_emplace({owner, writer.journal}, 0);
  if (fresh) {
    auto& free = free_numbers_[owner];
    if (free.empty()) {
      at->second = first_writer_kind + next_number_[owner]++;
    } else {
      at->second = free.back();
      free.pop_back();
    }
    Bytes bytes;
    Encoder out(bytes);
    out.number(at->second);
    out.text(journal_name);
    out.raw(&writer, sizeof writer);
    outbox_.push({owner, Lane::journals, writer_kind, std::move(bytes), {}});
  }
  outbox_.push({owner, Lane::journals, at->second, {}, record.whole, writer.journal, record.sequence});
}

void RecordSender::writer_gone(std::uint64_t journal) {
  for (auto it = numbers_.begin(); it != numbers_.end();) {
    if (it->first.second != journal) {
      ++it;
      continue;
    }
    Bytes bytes;
    Encoder out(bytes);
    out.number(it->second);
    outbox_.push({it->first.first, Lane::journals, gone_kind, std::move(bytes), {}});
    free_numbers_[it->first.first].push_back(it->second);
    it = numbers_.erase(it);
  }
}

}  // namespace advectio
