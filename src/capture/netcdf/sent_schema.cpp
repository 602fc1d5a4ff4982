#include "capture/netcdf/sent_schema.h"

#include <sys/stat.h>

#include <climits>
#include <optional>

#include "capture/netcdf/codes.h"
#include "capture/shadow/guard.h"

namespace advectio::netcdf {

const Schema& SentSchema::read() {
  return unsent_ ? description_.read(shadow_.fill_mode()) : description_.last_read();
}

void SentSchema::touch(Touched what, int variable) {
  unsent_ = true;
  description_.touch(what, variable);
  if (!together_.several() || !together_.first()) return;
  // The blocks of the others wait for what rank 0 has changed, except for global attributes.
  const bool of_variable = what == Touched::variable || what == Touched::all_but_attributes;
  if (what == Touched::globals || (of_variable && variable == NC_GLOBAL)) return;
  structure_unsent_ = true;
  together_.collective_out()->hold_schema();
}

void SentSchema::begin_define_mode() {
  read();
  unsent_before_redef_ = unsent_;
}

int SentSchema::end_classic(const ClassicPadding& asked, bool padded) {
  ClassicPadding padding = asked;
  for (auto* align : {&padding.data_align, &padding.record_align}) {
    struct stat file {};
    if (*align == static_cast<std::size_t>(NC_ALIGN_CHUNK))
      *align = stat(out_.file_path().c_str(), &file) == 0 ? static_cast<std::uint64_t>(file.st_blksize) : 4096;
  }
  // This can fail. Then the definitions ended before must not be lost.
  const bool changes = padded || layout_.begin_records > INT_MAX / 2 ||
                       static_cast<std::size_t>(shadow_.variables()) != description_.last_read().variables.size();
  std::optional<Schema> before;
  if (unsent_before_redef_ && changes) before = description_.last_read();
  const auto layout_before = layout_;
  const int code = layout_.end_define_mode(read(), padding);
  if (code == NC_NOERR) {
    if (layout_ != layout_before) unsent_ = true;
  } else if (before && send(*before) == NC_NOERR) {
    unsent_before_redef_ = false;
  }
  return code;
}

int SentSchema::flush() noexcept {
  if (!unsent_ || !together_.first()) return NC_NOERR;
  return shadow::answered("the schema", [&] {
    read();
    if (const int code = send(description_.last_read()); code != NC_NOERR) return code;
    unsent_ = unsent_before_redef_ = structure_unsent_ = false;
    return NC_NOERR;
  });
}

int SentSchema::send_ended() {
  if (const int code = send(description_.last_read()); code != NC_NOERR) return code;
  if (!shadow_.defining()) unsent_ = false;
  unsent_before_redef_ = false;
  return NC_NOERR;
}

int SentSchema::send(Schema& schema) {
  if (shadow_.classic_format()) layout_.pad(schema);
  const auto sent = stall_.timed([&] { return out_.schema(schema); });
  if (sent.ok()) variables_ = schema.variables.size();
  return code_of(sent);
}

}  // namespace advectio::netcdf
