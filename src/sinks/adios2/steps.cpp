#include "sinks/adios2/steps.h"

#include <algorithm>
#include <map>
#include <string>

namespace advectio::adios2 {
namespace {

Error cannot(std::string what) {
  return Error{Code::unsupported, std::move(what), 0};
}

/// What of `part` lies in one record; empty where nothing does.
std::vector<Part> in_record(const Part& part, std::uint64_t record) {
  const auto stride = part.stride.empty() ? 1 : part.stride[0];
  const auto first = part.box.start[0];
  if (record < first || (record - first) % stride != 0 || (record - first) / stride >= part.box.count[0]) return {};
  auto out = part;
  out.box.start[0] = record;
  out.box.count[0] = 1;
  return {std::move(out)};
}

/// What was put of one variable.
struct OfVariable {
  std::shared_ptr<const Field> field;
  std::vector<Part> parts;
};

}  // namespace

bool has_records(const Schema& schema, const Variable& variable) noexcept {
  return !variable.dimensions.empty() && schema.dimensions[variable.dimensions[0]].unlimited;
}

Result<void> can_append(const Schema& schema) {
  for (const auto& v : schema.variables) {
    const auto& d = v.dimensions;
    if (v.type == DataType::string)
      return cannot("variable " + v.name + " is of type string; ADIOS2 has no arrays of strings");
    for (std::size_t k = 1; k < d.size(); ++k)
      if (schema.dimensions[d[k]].unlimited)
        return cannot("variable " + v.name + " has the unlimited dimension " + schema.dimensions[d[k]].name +
                      " in place " + std::to_string(k + 1) + "; ADIOS2 only has it as the steps, in the first place");
    for (const auto& a : v.attributes)
      if (a.name == "dimensions" || a.name == "step_dimension")
        return cannot("attribute " + v.name + ":" + a.name + " has the name of one that readers of ADIOS2 files need");
  }
  for (const auto& a : schema.attributes)
    if (a.name == "step_dimension")
      return cannot("attribute " + a.name + " has the name of one that readers of ADIOS2 files need");
  return {};
}

Result<std::vector<Step>> steps_alone(const Schema& schema, const FrameParts& frame) {
  std::vector<std::uint64_t> lengths(schema.variables.size(), UINT64_MAX);
  for (const auto& [field, part] : frame.parts) {
    auto& first = lengths[field->variable()];
    if (part.box.volume() > 0 && has_records(schema, schema.variables[field->variable()]))
      first = std::min(first, part.box.start[0]);
  }
  for (auto& first : lengths)
    if (first == UINT64_MAX) first = 0;
  return steps_of(schema, frame, lengths);
}

Result<std::vector<Step>> steps_of(const Schema& schema, const FrameParts& frame, std::vector<std::uint64_t>& lengths) {
  lengths.resize(schema.variables.size(), 0);
  std::map<std::uint32_t, OfVariable> variables;
  for (const auto& [field, part] : frame.parts) {
    if (part.box.volume() == 0) continue;
    auto& of = variables[field->variable()];
    of.field = field;  // the latest: it has all blocks
    of.parts.push_back(part);
  }
  std::size_t count = variables.empty() ? 0 : 1;
  std::map<std::uint32_t, std::uint64_t> ends;
  for (const auto& [number, of] : variables) {
    const auto& v = schema.variables[number];
    if (!has_records(schema, v)) continue;
    auto first = UINT64_MAX;
    std::uint64_t end = 0;
    for (const auto& part : of.parts) {
      const auto bounds = part.bounds();
      first = std::min(first, bounds.start[0]);
      end = std::max(end, bounds.start[0] + bounds.count[0]);
    }
    if (first < lengths[number])
      return cannot("record " + std::to_string(first) + " of variable " + v.name + " is put again in frame " +
                    std::to_string(frame.number) +
                    ", and this format only appends; give the dataset a rule with another format");
    ends[number] = end;
    count = std::max<std::size_t>(count, end - lengths[number]);
  }
  std::vector<Step> steps(count);
  for (auto& [number, of] : variables) {
    const auto& v = schema.variables[number];
    Box whole;
    for (const auto d : v.dimensions) {
      whole.start.push_back(0);
      whole.count.push_back(schema.dimensions[d].length);
    }
    if (!has_records(schema, v)) {
      if (lengths[number] > 0 && !of.field->covers(whole))
        return cannot("variable " + v.name + ", which has no records, is put again in frame " +
                      std::to_string(frame.number) +
                      ", and not all of it; this format only appends: give the dataset a rule with another format");
      ++lengths[number];
      steps[0].push_back({number, of.field, std::move(whole), std::move(of.parts)});
      continue;
    }
    whole.count[0] = 1;
    const auto end = ends[number];
    auto step = count - (end - lengths[number]);
    for (auto record = lengths[number]; record < end; ++record, ++step) {
      Put put{number, nullptr, whole, {}};
      put.whole.start[0] = record;
      for (const auto& part : of.parts)
        for (auto& p : in_record(part, record)) put.parts.push_back(std::move(p));
      if (!put.parts.empty()) put.field = of.field;
      steps[step].push_back(std::move(put));
    }
    lengths[number] = end;
  }
  return steps;
}

}  // namespace advectio::adios2
