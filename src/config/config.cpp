#include "config/config.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "config/fields.h"
#include "config/glob.h"
#include "config/nearest.h"
#include "config/processing_rule.h"
#include "config/yaml_text.h"

namespace advectio {
namespace {

using config::Fault;
using config::Field;
using config::line_of;
using config::line_of_key;

/// A key as it is known: the section it belongs to ("" for a section itself) and its name.
struct Known {
  std::string section, key;
  [[nodiscard]] std::string full() const { return section.empty() ? key : section + "." + key; }
};

std::vector<Known> all_known() {
  std::vector<Known> known;
  const Config config;
  config::for_each_section(config, [&](const std::string& name, const auto& fields, const auto&) {
    if (!name.empty()) known.push_back({"", name});
    for (const auto& f : fields) known.push_back({name, std::string(f.key)});
  });
  known.push_back({"", "datasets"});
  known.push_back({"datasets", "match"});
  for (const auto& f : config::dataset_fields()) known.push_back({"datasets", std::string(f.key)});
  known.push_back({"", "couple"});
  for (const auto& f : config::couple_fields()) known.push_back({"couple", std::string(f.key)});
  known.push_back({"", "sets"});
  for (const auto& f : config::set_fields()) known.push_back({"sets", std::string(f.key)});
  return known;
}

/// What other programs call a key of ours.
std::string called(const std::string& key) {
  for (const std::string_view other : {"compress", "gzip", "zip", "zlib"})
    if (key.rfind(other, 0) == 0) return "codec";
  return key;
}

/// To be said of a key that is not known: the nearest one, where one is near. The same name in another section counts
/// as near.
std::string advice(const std::string& section, const std::string& key) {
  const std::string meant = called(key);
  const auto all = all_known();
  const Known* best = nullptr;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::string here;
  for (const Known& k : all) {
    if (k.section == section) here += (here.empty() ? "" : ", ") + k.key;
    const std::size_t d = 2 * edit_distance(meant, k.key) + (k.section == section ? 0 : 1);
    if (d >= least) continue;
    least = d;
    best = &k;
  }
  // With half of its letters changed anything is like anything.
  if (best == nullptr || least / 2 > meant.size() / 2) return "; known here: " + here;
  const bool of_a_rule = best->section == "datasets" && section != "datasets";
  return "; did you mean " + best->full() + "?" + (of_a_rule ? " (a key of a rule, beside match)" : "");
}

/// Reads one text. Every member returns false after `refuse`, so that the first fault ends it.
class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  Result<Config> parse(std::string_view text) {
    Config config = default_config();
    if (!read(text, config)) return std::move(error_);
    return config;
  }

 private:
  bool refuse(int line, const std::string& what) {
    error_ = Error{Code::config, name_ + ":" + std::to_string(line) + ": " + what};
    // What is quoted of the file must not make a second line of it.
    std::replace_if(
        error_.message.begin(), error_.message.end(), [](unsigned char c) { return c < ' '; }, ' ');
    return false;
  }
  /// `key` stands at `key_node`; a value that is nothing has no line of its own.
  bool refuse(const Fault& fault, const std::string& key, const YAML::Node& key_node, const YAML::Node& value) {
    return refuse(value.IsNull() ? line_of(key_node) : fault.line, key + ": " + fault.text);
  }

  [[nodiscard]] std::string origin(const YAML::Node& node) const { return name_ + ":" + std::to_string(line_of(node)); }

  bool read(std::string_view text, Config& config) {
    YAML::Node root;
    if (auto fault = config::load_yaml(text, root)) return refuse(fault->line, fault->text);
    if (root.IsNull()) return true;
    if (!root.IsMap())
      return refuse(line_of(root),
                    "sections are wanted here: stage, server, readers, workflow, log, datasets, couple, markers, "
                    "events, on, sets");

    std::set<std::string> seen;
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) return refuse(line_of(entry.first), "a key is wanted here");
      const std::string& key = entry.first.Scalar();
      if (!seen.insert(key).second) return refuse(line_of(entry.first), "section " + key + " stands there twice");
      bool known = false;
      bool good = true;
      config::for_each_section(config, [&](const std::string& name, const auto& fields, auto& section) {
        if (name.empty()) {
          for (const auto& field : fields) {
            if (field.key != key) continue;
            known = true;
            if (auto fault = field.read(entry.second, section)) good = refuse(*fault, key, entry.first, entry.second);
            config.origins[key] = origin(entry.first);
          }
          return;
        }
        if (name != key) return;
        known = true;
        good = read_section(name, entry.second, fields, section, config.origins);
      });
      if (key == "datasets") {
        known = true;
        good = read_datasets(entry.second, config.datasets);
      }
      if (key == "couple") {
        known = true;
        good = read_couple(entry.second, config.couple);
      }
      if (key == "sets") {
        known = true;
        good = read_sets(entry.second, config.sets);
      }
      if (!known) return refuse(line_of(entry.first), "unknown key " + key + advice("", key));
      if (!good) return false;
    }
    return check_stage(config);
  }

  template <typename Section>
  bool read_section(const std::string& name, const YAML::Node& node, const std::vector<Field<Section>>& fields,
                    Section& section, std::map<std::string, std::string>& origins) {
    if (node.IsNull()) return true;
    if (!node.IsMap())
      return refuse(line_of(node),
                    name + ": keys are wanted below it, like " + name + "." + std::string(fields.front().key));
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return refuse(line_of(entry.first), "a key is wanted here");
      const std::string& key = entry.first.Scalar();
      const std::string full = name + "." + key;
      if (!seen.insert(key).second) return refuse(line_of(entry.first), full + " stands there twice");
      const auto field = std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.key == key; });
      if (field == fields.end())
        return refuse(line_of(entry.first), "unknown key " + full + advice(name.substr(0, name.find('[')), key));
      if (auto fault = field->read(entry.second, section)) return refuse(*fault, full, entry.first, entry.second);
      origins[full] = origin(entry.first);
    }
    return true;
  }

  bool read_datasets(const YAML::Node& node, std::vector<DatasetRule>& rules) {
    if (node.IsNull()) return true;
    if (!node.IsSequence())
      return refuse(line_of(node), "datasets: a list of rules is wanted, each beginning with - match: PATTERN");
    std::size_t number = 0;
    for (const auto& item : node) {
      const std::string where = "datasets[" + std::to_string(number++) + "]";
      if (!item.IsMap()) return refuse(line_of(item), where + ": a rule is wanted, beginning with match: PATTERN");
      DatasetRule rule;
      if (!read_rule(where, item, rule)) return false;
      rules.push_back(std::move(rule));
    }
    return true;
  }

  bool read_couple(const YAML::Node& node, std::vector<CoupleRule>& rules) {
    if (node.IsNull()) return true;
    if (!node.IsSequence())
      return refuse(line_of(node),
                    "couple: a list of rules is wanted, like - {match: \"history.*\", from: model, to: assimilation}");
    std::size_t number = 0;
    for (const auto& item : node) {
      const std::string where = "couple[" + std::to_string(number++) + "]";
      if (!item.IsMap()) return refuse(line_of(item), where + ": a rule is wanted, with match, from and to");
      auto& rule = rules.emplace_back();
      std::map<std::string, std::string> origins;
      if (!read_section(where, item, config::couple_fields(), rule, origins)) return false;
      rule.origin = origin(item);
      for (const char* key : {"match", "from", "to"})
        if (!origins.contains(where + "." + key)) return refuse(line_of(item), where + ": " + key + " is missing");
      const auto captures = captures_of(rule.match);
      for (const char* key : {"from", "to"})
        for (const auto& name : *key == 'f' ? rule.from : rule.to)
          for (const auto& capture : captures_of(name))
            if (std::find(captures.begin(), captures.end(), capture) == captures.end())
              return refuse(line_of_key(item, key), where + "." + key + ": {" + capture + "} is not in match");
      if (!rule.variables.empty() && rule.mode != CoupleRule::Mode::memory_and_file)
        return refuse(line_of_key(item, "variables"),
                      where + ".variables: a file that is in memory alone has all of them; say mode: memory+file");
    }
    return true;
  }

  bool read_sets(const YAML::Node& node, std::vector<SetRule>& rules) {
    if (node.IsNull()) return true;
    if (!node.IsSequence())
      return refuse(
          line_of(node),
          "sets: a list is wanted, like - {name: restart, match: [\"rst_{instant}.nc\"], link: restart.latest}");
    for (const auto& item : node) {
      const std::string where = "sets[" + std::to_string(rules.size()) + "]";
      if (!item.IsMap()) return refuse(line_of(item), where + ": a set is wanted, with name, match and link");
      SetRule rule;
      std::map<std::string, std::string> origins;
      if (!read_section(where, item, config::set_fields(), rule, origins)) return false;
      rule.origin = origin(item);
      for (const char* key : {"name", "match", "link"})
        if (!origins.contains(where + "." + key)) return refuse(line_of(item), where + ": " + key + " is missing");
      if (!check_set(where, item, rule, rules)) return false;
      rules.push_back(std::move(rule));
    }
    return true;
  }

  bool check_set(const std::string& where, const YAML::Node& item, const SetRule& rule,
                 const std::vector<SetRule>& others) {
    const auto twice = [&](const char* key, const std::vector<std::string>& texts) {
      for (auto it = texts.begin(); it != texts.end(); ++it)
        if (std::find(texts.begin(), it, *it) != it)
          return refuse(line_of_key(item, key), where + "." + key + ": '" + *it + "' stands there twice");
      return true;
    };
    if (rule.match.empty()) return refuse(line_of_key(item, "match"), where + ".match: a pattern is wanted");
    if (!twice("match", rule.match) || !twice("members", rule.members)) return false;
    if (rule.link.back() == '/' || (!rule.pointer.empty() && rule.pointer.back() == '/'))
      return refuse(line_of_key(item, rule.link.back() == '/' ? "link" : "pointer"),
                    where + ": a link and a pointer are names, without a / at the end");
    if (rule.link == rule.pointer)
      return refuse(line_of_key(item, "pointer"), where + ".pointer: '" + rule.pointer + "' is the link, too");
    for (const auto& other : others) {
      if (other.name == rule.name)
        return refuse(line_of_key(item, "name"), where + ".name: '" + rule.name + "' is the name of another set");
      if (other.link == rule.link)
        return refuse(line_of_key(item, "link"), where + ".link: '" + rule.link + "' is the link of another set");
    }
    return true;
  }

  bool read_rule(const std::string& where, const YAML::Node& item, DatasetRule& rule) {
    rule.origin = origin(item);
    for (const auto& entry : item) {
      if (!entry.first.IsScalar()) return refuse(line_of(entry.first), "a key is wanted here");
      const std::string& key = entry.first.Scalar();
      const std::string full = where + "." + key;
      if (rule.origins.contains(key)) return refuse(line_of(entry.first), full + " stands there twice");
      if (key == "match") {
        if (!read_match(full, entry.second, rule)) return false;
      } else if (key == "outputs") {
        if (!read_outputs(full, entry.first, entry.second, rule.values)) return false;
      } else {
        const auto& fields = config::dataset_fields();
        const auto field = std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.key == key; });
        if (field == fields.end()) return refuse(line_of(entry.first), "unknown key " + full + advice("datasets", key));
        if (auto fault = field->read(entry.second, rule.values)) return refuse(*fault, full, entry.first, entry.second);
      }
      rule.origins[key] = origin(entry.first);
    }
    if (!rule.origins.contains("match")) return refuse(line_of(item), where + ": match is missing");
    rule.origins.erase("match");
    return check_rule(where, item, rule);
  }

  bool read_match(const std::string& full, const YAML::Node& node, DatasetRule& rule) {
    if (!node.IsScalar())
      return refuse(line_of(node), full + ": a pattern like \"wrfout_*\" is wanted" +
                                       (node.IsNull() ? "; one that begins with & or * stands in quotes" : ""));
    rule.match = node.Scalar();
    if (auto good = check_glob(rule.match); !good)
      return refuse(line_of(node), full + ": '" + rule.match + "': " + good.error().message);
    if (rule.match.find('/') != std::string::npos &&
        std::string_view("/*?[").find(rule.match.front()) == std::string_view::npos)
      return refuse(line_of(node), full + ": '" + rule.match +
                                       "' can match nothing: with a / in it, it is held against the absolute path; "
                                       "begin it with / or */");
    return true;
  }

  /// An output with operators is a rule of `advectio process`. The others are the server's.
  bool read_outputs(const std::string& full, const YAML::Node& key, const YAML::Node& node, DatasetPolicy& policy) {
    if (node.IsScalar() && node.Scalar() == "none") return true;
    if (!node.IsSequence())
      return refuse(node.IsNull() ? line_of(key) : line_of(node),
                    full + ": a list is wanted, like [{path: \"small/{name}\", codec: zstd}], or none");
    for (std::size_t i = 0; i < node.size(); ++i) {
      const YAML::Node item = node[i];
      const auto where = full + "[" + std::to_string(i) + "]";
      ProcessRule rule;
      if (auto fault = config::read_process_rule(where, item, name_, false, rule))
        return refuse(fault->line, fault->text);
      const auto at = line_of_key(item, "path");
      for (std::size_t k = 0; k < i; ++k)
        if (node[k]["path"].Scalar() == rule.path)
          return refuse(at,
                        where + ".path: '" + rule.path + "' is the path of outputs[" + std::to_string(k) + "], too");
      const bool has_name = rule.path.find("{name}") != std::string::npos;
      if (rule.path == "{name}") return refuse(at, where + ".path: '{name}' is no other file than the program's");
      if (config::has_operators(rule)) {
        const auto format = rule.stored.format;
        if (format == FileFormat::bp5 || format == FileFormat::sst)
          return refuse(line_of_key(item, "format"),
                        where + ".format: operators make no bp5 and no sst yet; only outputs without operators do");
        policy.processed.push_back({i, rule.path, config::flow_text(item), rule.origin});
      } else if (!has_name) {
        return refuse(at, where + ".path: '" + rule.path + "' needs {name}, for the name of the program's file");
      } else {
        policy.outputs.push_back({rule.path, rule.stored});
      }
    }
    return true;
  }

  /// What is wrong only in combination. A rule is complete in itself here: `codec`, `level`, `deflate` and `format`
  /// of other rules do not make it right or wrong.
  bool check_rule(const std::string& where, const YAML::Node& item, const DatasetRule& rule) {
    const auto line = [&](const char* key) { return line_of_key(item, key); };
    const DatasetPolicy& v = rule.values;
    if (v.promise == Promise::durable && rule.sets("durable") && !v.durable)
      return refuse(line("promise"), where + ".promise: durable cannot be kept with durable: false in the same rule");
    if (v.full == WhenFull::drop_frame && v.promise == Promise::durable)
      return refuse(line("full"), where + ".full: drop-frame cannot be for what is promised to be durable");
    if (v.full == WhenFull::drop_frame && v.join)
      return refuse(line("full"), where + ".full: drop-frame cannot be for tiles that become one file (join: true)");
    const bool is_held_back = rule.sets("appear") && v.appear != Appear::create;
    if (is_held_back && (v.join || (v.format && is_store(*v.format))))
      return refuse(
          line("appear"),
          where + ".appear: " + (v.join ? "tiles that become one file (join: true)" : "what is no file (format)") +
              std::string(" cannot be held back; leave it out"));
    if ((!v.outputs.empty() || !v.processed.empty()) && v.join)
      return refuse(line("outputs"), where + ".outputs cannot be of tiles that become one file (join: true)");
    if (!v.processed.empty() && !v.capture)
      return refuse(line("outputs"),
                    where + ".outputs cannot be of files that are left to the library (capture: false)");
    if (!v.processed.empty() && (v.format == FileFormat::bp5 || v.format == FileFormat::sst))
      return refuse(line("outputs"), where + ".outputs: operators do not read what ADIOS2 writes; leave out format: " +
                                         std::string(v.format == FileFormat::bp5 ? "bp5" : "sst"));
    if (auto fault = config::check_storage(where, item, rule)) return refuse(fault->line, fault->text);
    return true;
  }

  bool check_stage(Config& config) {
    StageConfig& stage = config.stage;
    const auto origin_of = [&](const char* key) -> const std::string& { return config.origins.at(key); };
    const auto place_of = [&](const char* key, const char* other) {
      const std::string& o = origin_of(key) != "default" ? origin_of(key) : origin_of(other);
      return std::atoi(o.substr(o.rfind(':') + 1).c_str());
    };
    if (stage.bytes_max && *stage.bytes_max < 2 * stage.segment_bytes)
      return refuse(place_of("stage.bytes_max", "stage.segment_bytes"),
                    "stage.bytes_max (" + size_text(*stage.bytes_max) + ") holds fewer than two segments of " +
                        size_text(stage.segment_bytes) + " (stage.segment_bytes, " + origin_of("stage.segment_bytes") +
                        "); make stage.bytes_max at least " + size_text(2 * stage.segment_bytes) +
                        " or stage.segment_bytes smaller");
    if (stage.bytes_max && stage.warm_bytes > *stage.bytes_max) {
      if (origin_of("stage.warm_bytes") != "default")
        return refuse(place_of("stage.warm_bytes", "stage.bytes_max"),
                      "stage.warm_bytes (" + size_text(stage.warm_bytes) + ") is more than stage.bytes_max (" +
                          size_text(*stage.bytes_max) + "); make it at most that");
      stage.warm_bytes = *stage.bytes_max;
    }
    return check_spill(config);
  }

  bool check_spill(const Config& config) {
    const auto line_at = [](const std::string& origin) {
      return std::atoi(origin.substr(origin.rfind(':') + 1).c_str());
    };
    const StageConfig& stage = config.stage;
    if (stage.spill_max && stage.spill.empty())
      return refuse(line_at(config.origins.at("stage.spill_max")),
                    "stage.spill_max: there is nowhere to spill to; name a directory on a disk with stage.spill");
    for (const auto& rule : config.datasets)
      if (rule.values.full == WhenFull::spill && stage.spill.empty())
        return refuse(line_at(rule.origins.at("full")),
                      "full: spill has nowhere to spill to; name a directory on a disk with stage.spill");
    return true;
  }

  const std::string& name_;
  Error error_{Code::config, {}};
};

}  // namespace

Config default_config() {
  Config config;
  config::for_each_section(config, [&](const std::string& name, const auto& fields, const auto&) {
    for (const auto& f : fields) config.origins[config::full_key(name, f.key)] = "default";
  });
  return config;
}

Result<Config> parse_config(std::string_view text, const std::string& name) {
  return Parser(name).parse(text);
}

Result<Config> load_config(const std::string& path) {
  auto text = config::read_text(path);
  if (!text) return std::move(text).error();
  return parse_config(*text, path);
}

bool stage_keeps_promises(const Config& config) noexcept {
  const auto& rules = config.datasets;
  return config.stage.spill.empty() &&
         std::any_of(rules.begin(), rules.end(),
                     [](const auto& r) { return r.sets("promise") && r.values.promise == Promise::durable; }) &&
         std::none_of(rules.begin(), rules.end(), [](const auto& r) { return r.sets("join") && r.values.join; });
}

DatasetPolicy resolve(const Config& config, const std::string& path) {
  DatasetPolicy policy;
  bool priority_is_set = false;
  for (const DatasetRule& rule : config.datasets) {
    if (!dataset_matches(rule.match, path)) continue;
    priority_is_set = priority_is_set || rule.sets("priority");
    if (rule.sets("codec") || rule.sets("deflate")) policy.level = std::nullopt;
    for (const auto& field : config::dataset_fields())
      if (rule.sets(std::string(field.key))) field.copy(rule.values, policy);
    if (rule.sets("chunks")) policy.names_set_at.chunks = rule.origins.at("chunks");
    if (rule.sets("round")) policy.names_set_at.round = rule.origins.at("round");
    if (rule.sets("outputs"))
      for (auto& output : policy.outputs)
        output.policy.names_set_at = {rule.origins.at("outputs"), rule.origins.at("outputs")};
  }
  for (const SetRule& set : config.sets)
    for (const auto& pattern : set.match)
      if (dataset_matches(set_glob(pattern), path)) {
        policy.durable = true;
        if (!priority_is_set) policy.priority = Priority::high;
      }
  return policy;
}

std::string set_glob(const std::string& pattern) {
  const auto at = pattern.find("{instant}");
  return pattern.substr(0, at) + "*" + (at == std::string::npos ? "" : pattern.substr(at + 9));
}

unsigned round_bits(const DatasetPolicy& policy, const std::string& variable) {
  for (const auto& [name, bits] : policy.round)
    if (name == variable) return bits;
  for (const auto& [pattern, bits] : policy.round)
    if (glob_matches(pattern, variable)) return bits;
  return 0;
}

Result<std::uint64_t> stage_bytes_max(const Config& config, std::uint64_t memory_bytes, std::uint64_t free_bytes) {
  const StageConfig& stage = config.stage;
  if (stage.bytes_max) return *stage.bytes_max;
  const std::uint64_t cap = std::min(memory_bytes / 4, free_bytes / 10 * 8) / stage.segment_bytes * stage.segment_bytes;
  if (cap < 2 * stage.segment_bytes)
    return Error{Code::config, "stage.bytes_max: auto comes to " + size_text(cap) + " here (memory " +
                                   size_text(memory_bytes >> 20 << 20) + ", free in " + stage.directory + " " +
                                   size_text(free_bytes >> 20 << 20) + "), less than two segments of " +
                                   size_text(stage.segment_bytes) +
                                   "; make room there, or set stage.directory or a smaller stage.segment_bytes"};
  return cap;
}

std::string output_path(const OutputRule& output, const std::string& dataset) {
  const auto slash = dataset.find_last_of('/');
  const auto name = slash == std::string::npos ? dataset : dataset.substr(slash + 1);
  auto path = output.path;
  for (auto at = path.find("{name}"); at != std::string::npos; at = path.find("{name}", at + name.size()))
    path.replace(at, 6, name);
  return path.starts_with('/') || slash == std::string::npos ? path : dataset.substr(0, slash + 1) + path;
}

std::uint64_t stage_segment_bytes(const Config& config, std::uint64_t cap) noexcept {
  constexpr std::uint64_t segments_most = 32768;
  auto bytes = config.stage.segment_bytes;
  while (cap / bytes > segments_most) bytes *= 2;
  return bytes;
}

std::uint64_t spill_bytes_max(const Config& config, std::uint64_t free_bytes) noexcept {
  const StageConfig& stage = config.stage;
  if (stage.spill.empty()) return 0;
  return stage.spill_max.value_or(free_bytes / 10 * 8) / stage.segment_bytes * stage.segment_bytes;
}

std::string_view name_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::error: return "error";
    case LogLevel::warning: return "warning";
    case LogLevel::info: return "info";
    case LogLevel::debug: return "debug";
  }
  return "unknown";
}

std::string_view name_of(Codec codec) noexcept {
  switch (codec) {
    case Codec::asked: return "asked";
    case Codec::none: return "none";
    case Codec::deflate: return "deflate";
    case Codec::zstd: return "zstd";
    case Codec::lz4: return "lz4";
    case Codec::blosc_lz4: return "blosc-lz4";
    case Codec::blosc_zstd: return "blosc-zstd";
    case Codec::szip: return "szip";
  }
  return "unknown";
}

std::string_view name_of(DeflateBy by) noexcept {
  return by == DeflateBy::isal ? "isal" : "libdeflate";
}

std::string_view name_of(Shuffle shuffle) noexcept {
  switch (shuffle) {
    case Shuffle::asked: return "asked";
    case Shuffle::none: return "none";
    case Shuffle::byte: return "byte";
    case Shuffle::bit: return "bit";
  }
  return "unknown";
}

std::string_view name_of(Promise promise) noexcept {
  switch (promise) {
    case Promise::staged: return "staged";
    case Promise::visible: return "visible";
    case Promise::durable: return "durable";
  }
  return "unknown";
}

std::string_view name_of(CloseMode mode) noexcept {
  return mode == CloseMode::async ? "async" : "wait";
}

}  // namespace advectio
