#include "sources/adios2/bp5_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "platform/files.h"
#include "sinks/adios2/committed_steps.h"
#include "sinks/transaction/transactional_sink.h"
#include "sources/adios2/bp_file.h"

namespace advectio {
namespace {

using adios2::BpFile;
using adios2::BpVariable;

Error unsupported(std::string what) {
  return Error{Code::unsupported, std::move(what), 0};
}

std::string text_of(const Attribute& a) {
  return {reinterpret_cast<const char*>(a.values.data()), a.values.size()};
}

const Attribute* find(const std::vector<Attribute>& all, const std::string& name) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const Attribute& a) { return a.name == name; });
  return it == all.end() ? nullptr : &*it;
}

/// Names of dimensions as WRF has them, in Fortran's order: that of the time is the last.
std::vector<std::string> wrf_names(const Attribute& dims) {
  std::vector<std::string> out;
  for (const auto& s : dims.strings) out.push_back(s.value_or(""));
  if (out.empty()) out.push_back(text_of(dims));
  for (auto& name : out) name.erase(name.find_last_not_of(' ') + 1);
  return out;
}

class Bp5Source final : public Source {
 public:
  explicit Bp5Source(std::string path) : path_(std::move(path)) {}

  Result<void> open();

  [[nodiscard]] Result<SourceHead> head() const override { return head_; }
  Result<void> read(std::uint32_t variable, const Box& box, std::byte* to) const override;
  [[nodiscard]] Result<Bytes> read_strings(std::uint32_t variable, const Box& box) const override;

 private:
  /// Where a variable of the schema is.
  struct Place {
    const BpVariable* variable = nullptr;
    bool steps = false;      ///< its first dimension counts them
    bool one_value = false;  ///< ADIOS2 has one more dimension, of length 1
    bool letters = false;    ///< its last dimension is that of the letters of ADIOS2's text
  };
  /// What the file says of the names of a variable's dimensions.
  struct Names {
    std::string of_steps;
    std::vector<std::string> others;
  };

  void share_out(const std::vector<std::string>& known);
  Names names_of(const std::string& variable) const;
  Result<std::uint32_t> dimension(const std::string& name, std::uint64_t length, bool unlimited);
  Result<void> add(const BpVariable& variable);
  Result<void> add_attributes(Variable& to) const;

  std::string path_;
  std::unique_ptr<BpFile> file_;
  SourceHead head_;
  std::vector<Place> places_;
  bool ours_ = false;                                         ///< written by our sink, which fills what nobody has put
  bool wrf_ = false;                                          ///< written by WRF with ADIOS2
  std::string wrf_time_;                                      ///< name of the dimension of its time
  std::map<std::string, std::vector<Attribute>> attributes_;  ///< by variable; "" the file's
};

/// Which variable an attribute belongs to. Those of a variable that our sink never wrote belong to none.
void Bp5Source::share_out(const std::vector<std::string>& known) {
  std::set<std::string> names(known.begin(), known.end());
  for (const auto& v : file_->variables()) names.insert(v.name);
  for (auto a : file_->attributes()) {
    const auto slash = a.name.find('/');
    const auto owner = slash == std::string::npos ? std::string() : a.name.substr(0, slash);
    if (!owner.empty() && names.contains(owner)) {
      a.name.erase(0, slash + 1);
      attributes_[owner].push_back(std::move(a));
    } else {
      attributes_[""].push_back(std::move(a));
    }
  }
}

Bp5Source::Names Bp5Source::names_of(const std::string& variable) const {
  Names out;
  const auto found = attributes_.find(variable);
  const auto& own = found == attributes_.end() ? std::vector<Attribute>() : found->second;
  const auto& global = attributes_.at("");
  if (wrf_) {
    out.of_steps = wrf_time_;
    if (const auto* dims = find(own, "Dims"); dims != nullptr) out.others = wrf_names(*dims);
    if (!out.others.empty()) out.others.pop_back();
    std::reverse(out.others.begin(), out.others.end());
    return out;
  }
  if (const auto* dims = find(own, "dimensions"); dims != nullptr && dims->type == DataType::text) {
    std::istringstream words(text_of(*dims));
    for (std::string word; words >> word;) out.others.push_back(word);
  } else if (dims != nullptr && dims->type == DataType::string) {
    for (const auto& s : dims->strings) out.others.push_back(s.value_or(""));
  }
  if (const auto* step = find(own, "step_dimension"); step != nullptr)
    out.of_steps = text_of(*step);
  else if (const auto* of_all = find(global, "step_dimension"); of_all != nullptr && !ours_)
    out.of_steps = text_of(*of_all);
  return out;
}

Result<std::uint32_t> Bp5Source::dimension(const std::string& name, std::uint64_t length, bool unlimited) {
  auto& all = head_.schema.dimensions;
  if (name.find('/') != std::string::npos) return unsupported("dimension " + name + ": a name in netCDF has no '/'");
  for (std::size_t d = 0; d < all.size(); ++d) {
    if (all[d].name != name) continue;
    auto& known = head_.lengths[d];
    if (unlimited && all[d].unlimited) known = std::max(known, length);
    if (all[d].unlimited == unlimited && (unlimited || known == length)) return static_cast<std::uint32_t>(d);
    return unsupported("dimension " + name + " has length " + std::to_string(length) + ", and in other variables " +
                       std::to_string(known) + ", which netCDF cannot have");
  }
  all.push_back({name, unlimited ? 0 : length, unlimited});
  head_.lengths.push_back(length);
  return static_cast<std::uint32_t>(all.size() - 1);
}

Result<void> Bp5Source::add_attributes(Variable& to) const {
  const auto found = attributes_.find(to.name);
  if (found == attributes_.end()) return {};
  for (const auto& a : found->second) {
    if (a.name.find('/') != std::string::npos)
      return unsupported("attribute " + to.name + '/' + a.name + ": a name in netCDF has no '/'");
    if (a.name == "dimensions" || a.name == "step_dimension" || (wrf_ && a.name == "Dims")) continue;
    if (a.name == "dtype" && to.type == DataType::text && text_of(a) == "|S1") continue;
    to.attributes.push_back(a);
    if (a.name != "_FillValue" || to.type == DataType::string) continue;
    if (a.type != to.type || a.count != 1) {
      to.attributes.pop_back();  // netCDF refuses it
      continue;
    }
    to.has_fill = true;
    if (a.values != default_fill(to.type)) to.fill = a.values;
  }
  return {};
}

Result<void> Bp5Source::add(const BpVariable& bp) {
  auto names = names_of(bp.name);
  Place place;
  place.variable = &bp;
  Variable v;
  v.name = bp.name;
  v.type = bp.type;
  if (const auto own = attributes_.find(bp.name); own != attributes_.end() && v.type == DataType::uint8)
    if (const auto* dtype = find(own->second, "dtype"); dtype != nullptr && text_of(*dtype) == "|S1")
      v.type = DataType::text;
  auto shape = bp.shape;
  // WRF has its scalars as arrays of one element, with the name of the time only.
  place.one_value = wrf_ && shape.size() == 1 && shape[0] == 1 && names.others.empty();
  if (place.one_value) shape.clear();
  const bool all_steps = bp.steps == file_->steps() && (bp.steps > 1 || !names.of_steps.empty());
  place.steps = ours_ ? !names.of_steps.empty() : all_steps || bp.steps > 1;
  if (place.steps) {
    const bool grows = ours_ || all_steps;
    const auto name = !grows ? bp.name + "_steps" : names.of_steps.empty() ? "step" : names.of_steps;
    auto d = dimension(name, bp.steps, grows);
    if (!d) return std::move(d).error();
    v.dimensions.push_back(*d);
  }
  const bool named = names.others.size() == shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    auto d = dimension(named ? names.others[i] : "dim_" + std::to_string(shape[i]), shape[i], false);
    if (!d) return std::move(d).error();
    v.dimensions.push_back(*d);
  }
  if (wrf_ && bp.name == "Times" && v.type == DataType::string) {
    auto first = file_->read_text(bp, 0);
    if (!first) return std::move(first).error();
    auto d = dimension("DateStrLen", first->size(), false);
    if (!d) return std::move(d).error();
    v.type = DataType::text;
    v.dimensions.push_back(*d);
    place.letters = true;
  }
  ADVECTIO_TRY(add_attributes(v));
  head_.schema.variables.push_back(std::move(v));
  places_.push_back(place);
  return {};
}

Result<void> Bp5Source::open() {
  auto file = BpFile::open(path_);
  if (!file) return std::move(file).error();
  file_ = std::move(file).value();
  auto committed = adios2::read_committed(system_files(), path_);
  if (!committed) return std::move(committed).error();
  const auto order = *committed ? (*committed)->variables : std::vector<std::string>();
  attributes_[""];
  share_out(order);
  ours_ = committed->has_value() || std::any_of(attributes_.begin(), attributes_.end(), [](const auto& of) {
            return !of.first.empty() && find(of.second, "step_dimension") != nullptr;
          });
  for (const auto& [variable, all] : attributes_) {
    const auto* dims = ours_ || variable.empty() || find(all, "MemoryOrder") == nullptr ? nullptr : find(all, "Dims");
    if (dims == nullptr) continue;
    wrf_ = true;
    wrf_time_ = wrf_names(*dims).back();
    break;
  }
  head_.schema.format = FileFormat::bp5;
  for (const auto& a : attributes_[""]) {
    if (a.name == "step_dimension" || (wrf_ && a.name.starts_with("_DIM_"))) continue;
    if (a.name.find('/') != std::string::npos)
      return unsupported(path_ + ": attribute " + a.name + " is of no variable, and a name in netCDF has no '/'");
    head_.schema.attributes.push_back(a);
  }
  // In the order in which a program defined them, where the file says it.
  std::vector<const BpVariable*> variables;
  for (const auto& v : file_->variables()) variables.push_back(&v);
  std::stable_sort(variables.begin(), variables.end(), [&](const auto* a, const auto* b) {
    return std::find(order.begin(), order.end(), a->name) < std::find(order.begin(), order.end(), b->name);
  });
  for (const auto* v : variables) ADVECTIO_TRY_WITH(add(*v), path_ + ": variable " + v->name);
  return {};
}

Result<void> Bp5Source::read(std::uint32_t variable, const Box& box, std::byte* to) const {
  if (box.empty()) return {};
  const auto& place = places_[variable];
  const auto& v = head_.schema.variables[variable];
  const auto element = size_of(v.type);
  Box rest = box;
  if (place.steps) {
    rest.start.erase(rest.start.begin());
    rest.count.erase(rest.count.begin());
  }
  const auto bytes = rest.volume() * element;
  if (place.one_value) rest = {{0}, {1}};
  const auto first = place.steps ? box.start[0] : place.variable->steps - 1, count = place.steps ? box.count[0] : 1;
  const auto fill = v.fill.empty() ? default_fill(v.type) : v.fill;
  for (std::uint64_t i = 0; i < count; ++i, to += bytes) {
    const bool there = first + i < place.variable->steps;
    // Blocks of others need not cover their array.
    if (!there || !ours_) fill_with(to, bytes, fill);
    if (!there) continue;
    if (!place.letters) {
      ADVECTIO_TRY_WITH(file_->read(*place.variable, first + i, rest, to), path_);
      continue;
    }
    auto text = file_->read_text(*place.variable, first + i);
    if (!text) return std::move(text).error().with(path_);
    text->resize(std::max<std::size_t>(text->size(), rest.start[0] + rest.count[0]), '\0');
    std::memcpy(to, text->data() + rest.start[0], rest.count[0]);
  }
  return {};
}

Result<Bytes> Bp5Source::read_strings(std::uint32_t variable, const Box& box) const {
  const auto& place = places_[variable];
  const auto first = place.steps ? box.start[0] : place.variable->steps - 1, count = place.steps ? box.count[0] : 1;
  Bytes out;
  Encoder e(out);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (first + i >= place.variable->steps) {
      e.text("");
      continue;
    }
    auto text = file_->read_text(*place.variable, first + i);
    if (!text) return std::move(text).error().with(path_);
    e.text(*text);
  }
  return out;
}

}  // namespace

bool is_bp(const std::string& path) {
  const auto there = [&](const char* name) { return system_files().exists(path + '/' + name); };
  return there("md.idx") || (there("md.0") && there("data.0"));
}

Result<std::unique_ptr<Source>> open_bp5_source(const std::string& path) {
  auto source = std::make_unique<Bp5Source>(path);
  ADVECTIO_TRY(source->open());
  return std::unique_ptr<Source>(std::move(source));
}

}  // namespace advectio
