#include "capture/netcdf/captured_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "capture/netcdf/open_files.h"

namespace advectio::netcdf {

CapturedFile::CapturedFile(const RealLibrary& real, int id, std::string name, int creation_mode, FileFormat f,
                           std::unique_ptr<CapturedDataset> out, std::string place)
    : lib(real),
      ncid(id),
      path(std::move(name)),
      where(absolute(place.empty() ? path : place)),
      mode(creation_mode),
      format(f),
      out_(std::move(out)),
      stall_(*out_),
      shadow_(real, id, f),
      shapes_(real, id),
      together_(real, id, shapes_),
      description_(real, id, f),
      schema_(description_, shadow_, together_, *out_, stall_),
      place_(shapes_, !is_hdf5(f)),
      reader_(real, id),
      puts_(real, f, *out_, stall_, reader_) {}

/// The library is about to take the file over: from here on it is complete when that closes it.
void CapturedFile::keep_from_server() {
  if (!coupled_) return;
  auto* workflow = capture::workflow_of_process();
  if (workflow != nullptr && workflow->holds(where)) where += workflow::handed_over;
  if (coupled_->publish.empty()) return;  // a rank that is not the first
  if (workflow != nullptr) workflow->keep_from_server(*coupled_);
}

CapturedFile::~CapturedFile() {
  if (auto* workflow = coupled_ ? capture::workflow_of_process() : nullptr; workflow != nullptr)
    workflow->close_for_server(*coupled_);
  reader_.close();
  shadow_.close();
}

int CapturedFile::take_up(const ClosedFile& file) {
  opened_ = true;
  of_others_ = file.of_others;
  if (const int code = shadow_.take_up(); code != NC_NOERR) return code;
  shapes_.load();
  auto& extents = shapes_.extents();
  for (std::size_t d = 0; d < std::min(extents.size(), file.lengths.size()); ++d)
    if (extents[d].unlimited) extents[d].length = file.lengths[d];
  if (together_.several()) together_.take_up(file.schema.variables);
  schema_.take_up(file.layout, file.schema);
  description_.touch(Touched::everything, NC_GLOBAL);
  return schema_.flush();
}

/// Just before it is closed. Nothing: it cannot be opened again here.
std::optional<ClosedFile> CapturedFile::known_when_closed() {
  if (together_.several() || coupled_ || out_->identity().empty()) return std::nullopt;
  shapes_.load();
  ClosedFile known{out_->identity(), {}, {}, schema_.layout(), of_others_};
  for (const auto& extent : shapes_.extents()) known.lengths.push_back(extent.length);
  return known;
}

void CapturedFile::write_together(std::shared_ptr<shadow::Ranks> ranks, SharedDataset& out) {
  together_.begin(std::move(ranks), out);
  if (!together_.first()) description_.note_nothing();
}

// --- modes --------------------------------------------------------------------------------------

int CapturedFile::redef() {
  Collective in_call(together_.collective_out());
  const bool was_defining = shadow_.defining();
  if (const int code = shadow_.redef(); code != NC_NOERR) {
    in_call.refused();
    return code;
  }
  if (!was_defining) schema_.begin_define_mode();
  return NC_NOERR;
}

int CapturedFile::enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad,
                         std::size_t record_align) {
  const shadow::Stall stall(stall_);
  Collective in_call(together_.collective_out());
  int code = NC_NOERR;
  if (shadow_.classic_format()) {
    if (!shadow_.defining()) return NC_ENOTINDEFINE;
    ClassicPadding padding;
    if (header_pad != nullptr) padding = {*header_pad, data_align, data_pad, record_align};
    code = schema_.end_classic(padding, header_pad != nullptr);
    if (code == NC_NOERR) shadow_.ended();
  } else {
    code = shadow_.enddef(header_pad, data_align, data_pad, record_align);
  }
  if (code != NC_NOERR) {
    in_call.refused();
    return code;
  }
  description_.end_define_mode();
  return schema_.flush_structure();
}

int CapturedFile::set_fill(int fill_mode, int* old_mode) {
  Collective in_call(together_.collective_out());
  if (fill_mode != shadow_.fill_mode())
    if (const int code = keep_filled(); code != NC_NOERR) return code;
  if (const int code = shadow_.set_fill(fill_mode, old_mode); code != NC_NOERR) {
    in_call.refused();
    return code;
  }
  // One mode for the whole file in the classic formats; with netCDF-4 it is that of variables
  // defined from now on.
  if (shadow_.classic_format()) touch(Touched::everything);
  return NC_NOERR;
}

/// netCDF-4 proper enters data mode by itself.
int CapturedFile::leave_define_mode() {
  if (!shadow_.defining()) return NC_NOERR;
  if (shadow_.classic_format()) return enddef(nullptr, 0, 0, 0);
  if (const int code = shadow_.leave_define_mode(); code != NC_NOERR) return code;
  description_.end_define_mode();
  return NC_NOERR;
}

// --- metadata -----------------------------------------------------------------------------------

void CapturedFile::touch(Touched what, int variable) {
  schema_.touch(what, variable);
  reader_.close();
  if (what == Touched::dimensions || what == Touched::everything) shapes_.touch();
}

int CapturedFile::keep_filled() {
  if (!shadow_.classic_format() || shadow_.fresh()) return NC_NOERR;
  if (!shadow_.defining()) schema_.read();
  if (!schema_.unsent_ended()) return NC_NOERR;
  shapes_.load();
  const auto& variables = description_.last_read().variables;
  for (auto i = schema_.variables(); i < variables.size(); ++i) {
    const auto& v = variables[i];
    const auto* first = v.dimensions.empty() ? nullptr : &shapes_.extents()[v.dimensions[0]];
    if (v.no_fill || (first != nullptr && first->unlimited && first->length == 0)) continue;
    if (const int code = schema_.send_ended(); code != NC_NOERR) return code;
    // The server makes the file for a block: one element, as it is filled.
    const Box one{std::vector<std::uint64_t>(v.dimensions.size(), 0),
                  std::vector<std::uint64_t>(v.dimensions.size(), 1)};
    return puts_.send_fill(static_cast<int>(i), v, one);
  }
  return NC_NOERR;
}

bool CapturedFile::has_grown(const Shape& variable) {
  together_.learn_lengths();
  return shapes_.has_grown(variable);
}

bool CapturedFile::grown_length(int dimension, std::size_t& length) {
  together_.learn_lengths();
  return shapes_.ask(dimension, length);
}

/// The same dimensions, variables and attributes under the same numbers, all new.
int CapturedFile::make_likeness(int& likeness) {
  static std::atomic<unsigned> count{0};
  const std::string name = "/dev/null/advectio-likeness-" + std::to_string(count.fetch_add(1));
  const int code = lib.nc_create(name.c_str(), (mode & (NC_NETCDF4 | NC_CLASSIC_MODEL)) | NC_DISKLESS, &likeness);
  if (code != NC_NOERR) return code;
  return define(lib, likeness, schema_.read());
}

// --- data ---------------------------------------------------------------------------------------

PutAnswer CapturedFile::put(const PutCall& call) {
  const shadow::Stall stall(stall_);
  Collective in_call(together_.collective(call.variable) ? together_.collective_out() : nullptr);
  const auto answer = put_checked(call);
  if (answer.refused) in_call.refused();
  return answer;
}

PutAnswer CapturedFile::put_checked(const PutCall& call) {
  const bool forbidden = shadow_.forbids_data();
  const auto* v = shapes_.of(call.variable);
  // In define mode the shadow has the whole answer, unless it depends on lengths: they are zero
  // there.
  if (forbidden && call.form != PutCall::Form::varm)
    return {call.count == nullptr && v != nullptr && has_grown(*v) ? NC_EINDEFINE : NC_NOERR, true, true};
  if (v == nullptr) {
    // The shadow of a classic format is always in define mode, where its program is not.
    // The other forms ask for the variable's rank or type first.
    const bool complete = call.start != nullptr && (call.count != nullptr || call.form == PutCall::Form::var1);
    const bool one_step =
        complete && (call.form == PutCall::Form::var1 || (call.form == PutCall::Form::vara && call.memory != NC_NAT));
    const bool global = call.variable == NC_GLOBAL && one_step && shadow_.classic_format();
    return {global ? NC_EGLOBAL : NC_ENOTVAR, !shadow_.classic_format(), true};
  }
  const nc_type memory = call.memory == NC_NAT ? v->type : call.memory;

  PutAnswer answer;
  shapes_.load();
  if (call.form == PutCall::Form::var || call.count == nullptr) together_.learn_lengths();
  answer.code = place_.of(call, *v, memory, answer.ask_shadow);
  if (forbidden && (answer.code == NC_NOERR || answer.code == NC_EBADTYPE || place_.clipped())) {
    const bool nothing = place_.box().empty() && call.map != nullptr;
    return {nothing ? NC_NOERR : NC_EINDEFINE, false, true};
  }
  // Strings for numbers are refused when define mode has ended. The mapped form is taken apart into
  // others, which do so.
  const bool mapped = call.form == PutCall::Form::varm && call.map != nullptr;
  if (!forbidden && (answer.code == NC_EBADTYPE || (mapped && place_.clipped()))) leave_define_mode();
  answer.refused = answer.code != NC_NOERR;
  if (answer.refused) return answer;
  answer.ask_shadow = false;
  if (mapped && place_.box().empty()) return answer;
  answer.code = leave_define_mode();
  if (answer.code != NC_NOERR) return answer;
  const bool first = !shadow_.classic_format() && !shadow_.written(call.variable);
  if (together_.collective(call.variable)) {
    reader_.close();  // others put, too
    answer.code = schema_.flush();
  }
  if (answer.code == NC_NOERR) answer.code = together_.put(call.variable, *v, place_);
  if (answer.code == NC_NOERR && place_.box().empty()) {
    if (shadow_.classic_format()) answer.code = grow(call, *v);
    if (first) shadow_.note_written(call.variable);
    return answer;
  }
  if (answer.code == NC_NOERR) answer.code = schema_.flush();
  if (answer.code != NC_NOERR) return answer;

  reader_.close_unless_copy();
  PutCall inside(call);
  if (place_.clipped()) inside.map = place_.map();
  const Bytes* fill =
      Puts::converts(*v, memory) ? &schema_.read().variables[static_cast<std::size_t>(call.variable)].fill : nullptr;
  answer.code = puts_.send(inside, *v, memory, place_, fill);
  if (answer.code == NC_NOERR || answer.code == NC_ERANGE) {
    puts_.note(call.variable, place_);
    if (first) shadow_.note_written(call.variable);
    for (std::size_t i = 0; i < place_.box().rank(); ++i) {
      auto& extent = shapes_.extent(v->dimensions[i]);
      if (extent.unlimited) extent.length = std::max(extent.length, place_.end(i));
    }
    if (place_.clipped()) answer.code = NC_EINVALCOORDS;
  }
  return answer;
}

/// In the classic formats even a put of nothing makes the records up to its end, filled. We put one
/// of the fill values.
int CapturedFile::grow(const PutCall& call, const Shape& v) {
  if (place_.box().rank() == 0) return NC_NOERR;
  auto& extent = shapes_.extent(v.dimensions[0]);
  const auto length = place_.box().start[0] + place_.box().count[0];
  if (!extent.unlimited || length <= extent.length || !place_.strides_are_ones() || call.map != nullptr)
    return NC_NOERR;
  if (const int code = schema_.flush(); code != NC_NOERR) return code;
  Box one{std::vector<std::uint64_t>(place_.box().rank(), 0), std::vector<std::uint64_t>(place_.box().rank(), 1)};
  one.start[0] = length - 1;
  const auto& description = description_.last_read().variables[static_cast<std::size_t>(call.variable)];
  if (const int code = puts_.send_fill(call.variable, description, one); code != NC_NOERR) return code;
  puts_.note(call.variable, place_, 1);
  extent.length = length;
  return NC_NOERR;
}

/// The library's code for a get beyond the ends; NC_NOERR: there is none. Of a variable that grows it
/// answers when all ranks have made the call, as they tell each other the length then.
int CapturedFile::wrong_place(const Shape& v, const ReadPlace& place) const {
  const auto grows = [this](int d) { return shapes_.extent(d).unlimited; };
  if (place.start == nullptr || std::any_of(v.dimensions.begin(), v.dimensions.end(), grows)) return NC_NOERR;
  for (std::size_t i = 0; i < v.dimensions.size(); ++i)
    if (place.stride != nullptr && place.stride[i] <= 0) return NC_ESTRIDE;
  for (std::size_t i = 0; i < v.dimensions.size(); ++i) {
    const auto length = shapes_.extent(v.dimensions[i]).length;
    const auto start = place.start[i];
    const std::uint64_t count = place.one ? 1 : place.count != nullptr ? place.count[i] : 0;
    const auto stride = place.stride != nullptr ? place.stride[i] : 1;
    if (start > length || (start == length && count > 0)) return NC_EINVALCOORDS;
    if (count > 0 && (length - 1 - start) / static_cast<std::uint64_t>(stride) < count - 1) return NC_EEDGE;
  }
  return NC_NOERR;
}

CapturedFile::Reading CapturedFile::read(int variable, nc_type memory, bool whole, bool placed,
                                         const ReadPlace& place) {
  const shadow::Stall stall(stall_);
  Collective in_call(together_.collective(variable) ? together_.collective_out() : nullptr);
  const auto* v = shapes_.of(variable);
  if (shadow_.forbids_data()) {
    in_call.refused();
    const bool grown = v != nullptr && has_grown(*v);
    return {grown && whole ? NC_EINDEFINE : NC_NOERR, true, grown};
  }
  if (!shadow_.classic_format()) {
    if (v == nullptr) return {NC_ENOTVAR, true};
    // The library refuses a read without a place, and text as numbers, before it ends define mode.
    const int code = !placed && !v->dimensions.empty()                                 ? NC_EINVALCOORDS
                     : memory != NC_NAT && (memory == NC_CHAR) != (v->type == NC_CHAR) ? NC_ECHAR
                                                                                       : NC_NOERR;
    if (code != NC_NOERR) {
      in_call.refused();
      return {code, true};
    }
  }
  Reading reading;
  reading.code = leave_define_mode();
  if (reading.code != NC_NOERR) return reading;
  // A wrong call does not wait for the other ranks, which may not make it.
  if (v != nullptr && together_.collective(variable)) {
    shapes_.load();
    reading.code = wrong_place(*v, place);
  }
  if (reading.code != NC_NOERR) {
    in_call.refused();
    return reading;
  }
  if (!reader_.is_open()) {
    reading.code = schema_.flush();
    if (reading.code != NC_NOERR) return reading;
    in_call.end();  // what the others have put before this call is then of an earlier collective index
    reading.code = make_visible();
    if (reading.code != NC_NOERR) return reading;
    reading.code = reader_.open(out_->file_path(), description_.last_read(), shadow_.fill_mode(), !together_.several());
    if (reading.code != NC_NOERR) return reading;
  }
  reader_.begin_read();
  reading.ncid = reader_.ncid();
  reading.variable = variable;
  if (v != nullptr) reading.code = reader_.find(variable, reading.variable);  // else the file has none either
  return reading;
}

// --- frames and the end -------------------------------------------------------------------------

int CapturedFile::sync() {
  if (inherited()) return NC_NOERR;  // nothing here is new
  shadow::Stall stall(stall_);
  Collective in_call(together_.collective_out());
  const bool forbidden = shadow_.forbids_data();
  if (forbidden || !shadow_.classic_format()) {
    if (const int code = forbidden ? NC_EINDEFINE : shadow_.sync(); code != NC_NOERR) {
      in_call.refused();
      return code;
    }
    description_.end_define_mode();
  }
  reader_.close_unless_copy();
  const int flushed = schema_.flush();
  const auto synced = stall_.timed([&] { return out_->sync(); });
  return flushed != NC_NOERR ? flushed : code_of(synced);
}

int CapturedFile::make_visible() {
  if (shadow_.forbids_data()) return NC_EINDEFINE;
  if (const int code = leave_define_mode(); code != NC_NOERR) return code;
  if (const int code = schema_.flush(); code != NC_NOERR) return code;
  return code_of(stall_.timed([&] { return out_->wait_visible(); }));
}

void CapturedFile::settle_at_exit() {
  if (inherited()) return;
  reader_.close();
  if (leave_define_mode() == NC_NOERR) (void)schema_.flush();
}

int CapturedFile::close() {
  if (inherited()) return NC_NOERR;
  shadow::Stall stall(stall_);
  if (shadow_.classic_format() && shadow_.defining()) {
    // The format cannot hold these definitions: nc_abort is all that the library would do.
    const int code = shadow::answered("nc_close", [&] { return enddef(nullptr, 0, 0, 0); });
    if (code != NC_NOERR) {
      abort();
      return code;
    }
  }
  reader_.close();
  const int left = shadow::answered("nc_close", [&] { return leave_define_mode(); });
  const int settled = left == NC_NOERR ? schema_.flush() : left;
  std::optional<ClosedFile> known;
  if (settled == NC_NOERR) shadow::guarded("nc_close", [&] { known = known_when_closed(); });
  shadow_.close();
  stall.report();
  const auto closed = out_->close();
  if (known && closed.ok())
    shadow::guarded("nc_close", [&] {
      known->schema = std::move(description_.last_read());
      ClosedFiles::of_process().keep(std::move(*known));
    });
  return settled != NC_NOERR ? settled : code_of(closed);
}

int CapturedFile::abort() {
  if (inherited()) return NC_NOERR;
  if (!shadow_.defining() || !(shadow_.fresh() || schema_.unsent())) return close();
  reader_.close();
  shadow_.close();
  if (shadow_.fresh()) {
    struct stat made {
    }, now{};
    const bool known = ::stat(out_->file_path().c_str(), &made) == 0;
    const auto* session = Session::current();
    const auto present = session != nullptr ? session->present_path(where) : where;  // it may be held back
    const int code = code_of(out_->abort());
    // The server removes it in a moment; the program may look at once.
    if (known && together_.first() && ::stat(present.c_str(), &now) == 0 && now.st_dev == made.st_dev &&
        now.st_ino == made.st_ino && now.st_size == 0)
      ::unlink(present.c_str());
    return code;
  }
  // Definitions since the last nc_redef are forgotten. Values put before it stay. So does the
  // library.
  const int sent = schema_.unsent_ended() ? schema_.send_ended() : NC_NOERR;
  const auto closed = out_->close();
  return sent != NC_NOERR ? sent : code_of(closed);
}

}  // namespace advectio::netcdf
