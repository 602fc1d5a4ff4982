#include "config/fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>

#include "config/glob.h"
#include "config/nearest.h"
#include "config/yaml_text.h"

namespace advectio::config {
namespace {

std::string kind_of(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  if (node.IsNull()) return "nothing";
  return "'" + node.Scalar() + "'";
}

Fault at(const YAML::Node& node, std::string text) {
  return Fault{line_of(node), std::move(text)};
}

std::optional<Fault> wants_scalar(const YAML::Node& node, std::string_view what) {
  if (node.IsScalar()) return std::nullopt;
  return at(node, std::string(what) + " is wanted, this is " + kind_of(node));
}

template <typename T>
std::optional<T> whole_number(const std::string& text) {
  T value{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string range_text(std::uint64_t least, std::uint64_t most) {
  return std::to_string(least) + " to " + std::to_string(most);
}

template <typename S, typename T>
Field<S> base(std::string_view key, std::string_view type, std::string_view doc, T S::*member) {
  Field<S> f;
  f.key = key;
  f.type = type;
  f.doc = doc;
  f.number = [](const S&) { return std::nullopt; };
  f.copy = [member](const S& from, S& to) { to.*member = from.*member; };
  return f;
}

struct SizeRange {
  std::uint64_t least = 0, most = 1ULL << 60, multiple = 1;
};

std::optional<Fault> read_size(const YAML::Node& node, SizeRange range, std::string_view what, std::uint64_t& out) {
  if (auto fault = wants_scalar(node, what)) return fault;
  auto size = parse_size(node.Scalar());
  if (!size) return at(node, size.error().message);
  if (*size < range.least) return at(node, node.Scalar() + " is too small; the least is " + size_text(range.least));
  if (*size > range.most) return at(node, node.Scalar() + " is too large; the most is " + size_text(range.most));
  if (*size % range.multiple != 0)
    return at(node, node.Scalar() + " is not a multiple of " + std::to_string(range.multiple) + " bytes; " +
                        size_text(*size / range.multiple * range.multiple) + " would be");
  out = *size;
  return std::nullopt;
}

template <typename S>
Field<S> size_field(std::string_view key, std::uint64_t S::*member, SizeRange range, std::string_view doc) {
  auto f = base<S>(key, "size", doc, member);
  f.read = [=](const YAML::Node& node, S& s) { return read_size(node, range, "a size like 4GiB", s.*member); };
  f.show = [=](const S& s) { return size_text(s.*member); };
  f.number = [=](const S& s) { return std::optional(static_cast<double>(s.*member)); };
  return f;
}

/// A size, or the scalar `word` where there is none.
template <typename S>
Field<S> size_or_field(std::string_view key, std::optional<std::uint64_t> S::*member, SizeRange range,
                       std::string_view word, std::string_view type, std::string_view doc) {
  auto f = base<S>(key, type, doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (node.IsScalar() && node.Scalar() == word) {
      s.*member = std::nullopt;
      return std::nullopt;
    }
    std::uint64_t value = 0;
    if (auto fault = read_size(node, range, "a size like 4GiB, or " + std::string(word) + ",", value)) return fault;
    s.*member = value;
    return std::nullopt;
  };
  f.show = [=](const S& s) { return s.*member ? size_text(*(s.*member)) : std::string(word); };
  f.number = [=](const S& s) { return s.*member ? std::optional(static_cast<double>(*(s.*member))) : std::nullopt; };
  return f;
}

template <typename S>
Field<S> duration_field(std::string_view key, std::chrono::milliseconds S::*member, std::string_view doc) {
  auto f = base<S>(key, "duration", doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (auto fault = wants_scalar(node, "a duration like 30s")) return fault;
    auto duration = parse_duration(node.Scalar());
    if (!duration) return at(node, duration.error().message);
    s.*member = *duration;
    return std::nullopt;
  };
  f.show = [=](const S& s) { return duration_text(s.*member); };
  f.number = [=](const S& s) { return std::optional(static_cast<double>((s.*member).count()) / 1000.0); };
  return f;
}

std::optional<Fault> read_count(const YAML::Node& node, unsigned least, unsigned most, bool or_auto, unsigned& out) {
  const std::string tail = or_auto ? ", or auto" : "";
  if (auto fault = wants_scalar(node, "a whole number" + tail + (or_auto ? "," : ""))) return fault;
  const auto value = whole_number<unsigned>(node.Scalar());
  if (!value || *value < least || *value > most)
    return at(node, kind_of(node) + " is not a whole number from " + range_text(least, most) + tail);
  out = *value;
  return std::nullopt;
}

template <typename S>
Field<S> count_field(std::string_view key, unsigned S::*member, unsigned least, unsigned most, std::string_view doc) {
  auto f = base<S>(key, "whole number", doc, member);
  f.read = [=](const YAML::Node& node, S& s) { return read_count(node, least, most, false, s.*member); };
  f.show = [=](const S& s) { return std::to_string(s.*member); };
  f.number = [=](const S& s) { return std::optional(static_cast<double>(s.*member)); };
  return f;
}

template <typename S, typename T>
Field<S> count_or_auto_field(std::string_view key, std::optional<T> S::*member, unsigned least, unsigned most,
                             std::string_view doc) {
  auto f = base<S>(key, "whole number or auto", doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (node.IsScalar() && node.Scalar() == "auto") {
      s.*member = std::nullopt;
      return std::nullopt;
    }
    unsigned value = 0;
    if (auto fault = read_count(node, least, most, true, value)) return fault;
    s.*member = static_cast<T>(value);
    return std::nullopt;
  };
  f.show = [=](const S& s) { return s.*member ? std::to_string(*(s.*member)) : "auto"; };
  f.number = [=](const S& s) { return s.*member ? std::optional(static_cast<double>(*(s.*member))) : std::nullopt; };
  return f;
}

template <typename S>
Field<S> flag_field(std::string_view key, bool S::*member, std::string_view doc) {
  auto f = base<S>(key, "true or false", doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (!node.IsScalar() || (node.Scalar() != "true" && node.Scalar() != "false"))
      return at(node, "true or false is wanted, this is " + kind_of(node));
    s.*member = node.Scalar() == "true";
    return std::nullopt;
  };
  f.show = [=](const S& s) { return std::string(s.*member ? "true" : "false"); };
  return f;
}

template <typename E>
using Choice = std::pair<std::string_view, E>;

template <typename S, typename E>
Field<S> choice_field(std::string_view key, E S::*member, std::string_view type, std::vector<Choice<E>> choices,
                      std::string_view doc) {
  auto f = base<S>(key, type, doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (node.IsScalar()) {
      for (const auto& [name, value] : choices) {
        if (name != node.Scalar()) continue;
        s.*member = value;
        return std::nullopt;
      }
    }
    return at(node, kind_of(node) + " is none of: " + std::string(type));
  };
  f.show = [=](const S& s) {
    for (const auto& [name, value] : choices)
      if (value == s.*member) return std::string(name);
    return std::string();
  };
  return f;
}

template <typename N>
std::string flow_map(const std::vector<std::pair<std::string, N>>& entries) {
  std::string out = "{";
  for (const auto& [name, value] : entries) {
    if (out.size() > 1) out += ", ";
    out += yaml_scalar(name) + ": " + std::to_string(value);
  }
  return out + "}";
}

/// A map from names to whole numbers in a range; `word` is the scalar that means the empty map.
template <typename S, typename N>
Field<S> map_field(std::string_view key, std::vector<std::pair<std::string, N>> S::*member, std::string_view word,
                   std::string_view type, N least, N most, bool names_are_patterns, std::string_view doc) {
  auto f = base<S>(key, type, doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    std::vector<std::pair<std::string, N>> entries;
    if (node.IsScalar() && node.Scalar() == word) {
      s.*member = std::move(entries);
      return std::nullopt;
    }
    if (!node.IsMap())
      return at(node, "a map like " + std::string(type.substr(0, type.find(" or "))) + ", or " + std::string(word) +
                          ", is wanted, this is " + kind_of(node));
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() || entry.first.Scalar().empty())
        return at(entry.first, "a name is wanted, this is " + kind_of(entry.first));
      const std::string& name = entry.first.Scalar();
      if (!seen.insert(name).second) return at(entry.first, "'" + name + "' stands there twice");
      if (names_are_patterns) {
        if (auto good = check_glob(name); !good) return at(entry.first, "'" + name + "': " + good.error().message);
      }
      const auto value = entry.second.IsScalar() ? whole_number<N>(entry.second.Scalar()) : std::nullopt;
      if (!value || *value < least || *value > most)
        return at(entry.second, "'" + name + "': " + kind_of(entry.second) + " is not a whole number " +
                                    (most == std::numeric_limits<N>::max() ? "of at least " + std::to_string(least)
                                                                           : "from " + range_text(least, most)));
      entries.emplace_back(name, *value);
    }
    s.*member = std::move(entries);
    return std::nullopt;
  };
  f.show = [=](const S& s) { return (s.*member).empty() ? std::string(word) : flow_map(s.*member); };
  return f;
}

template <typename S>
Field<S> text_field(std::string_view key, std::string S::*member, std::string_view type, bool may_be_null,
                    std::string_view doc) {
  auto f = base<S>(key, type, doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (may_be_null && node.IsNull()) {
      (s.*member).clear();
      return std::nullopt;
    }
    if (auto fault = wants_scalar(node, "a path")) return fault;
    if (node.Scalar().empty()) return at(node, "the path is empty");
    s.*member = node.Scalar();
    return std::nullopt;
  };
  f.show = [=](const S& s) { return (s.*member).empty() ? std::string("null") : yaml_scalar(s.*member); };
  return f;
}

template <typename S>
Field<S> texts_field(std::string_view key, std::vector<std::string> S::*member, std::string_view type,
                     std::string_view doc) {
  auto f = base<S>(key, type, doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (!node.IsSequence()) return at(node, "a list like [tcp:0.0.0.0:0] is wanted, this is " + kind_of(node));
    (s.*member).clear();
    for (const auto& one : node) {
      if (auto fault = wants_scalar(one, "a text")) return fault;
      if (one.Scalar().empty()) return at(one, "this entry is empty");
      (s.*member).push_back(one.Scalar());
    }
    return std::nullopt;
  };
  f.show = [=](const S& s) {
    std::string out = "[";
    for (const auto& one : s.*member) out += (out.size() > 1 ? ", " : "") + yaml_scalar(one);
    return out + "]";
  };
  return f;
}

/// A list of words, of which `known` has all.
template <typename S>
Field<S> words_field(std::string_view key, std::vector<std::string> S::*member, std::string_view type,
                     std::vector<std::string> known, std::string_view doc) {
  auto f = texts_field(key, member, type, doc);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    if (!node.IsSequence()) return at(node, "a list like [" + known.front() + "] is wanted, this is " + kind_of(node));
    std::vector<std::string> all;
    for (const auto& one : node) {
      const auto word = std::find(known.begin(), known.end(), one.IsScalar() ? one.Scalar() : "");
      if (word == known.end()) return at(one, kind_of(one) + " is none of: " + std::string(type.substr(8)));
      all.push_back(*word);
    }
    s.*member = std::move(all);
    return std::nullopt;
  };
  return f;
}

std::optional<Fault> read_transfer(const YAML::Node& node, Transfer& transfer) {
  if (!node.IsMap()) return at(node, "{from: PATTERN, to: DIRECTORY} is wanted, this is " + kind_of(node));
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (key != "from" && key != "to") return at(entry.first, kind_of(entry.first) + " is neither from nor to");
    auto& text = key == "from" ? transfer.from : transfer.to;
    if (!text.empty()) return at(entry.first, key + " stands there twice");
    if (auto fault = wants_scalar(entry.second, key == "from" ? "a pattern" : "a directory")) return fault;
    text = entry.second.Scalar();
    if (text.empty()) return at(entry.first, key + " is empty");
  }
  if (transfer.from.empty() || transfer.to.empty())
    return at(node, std::string(transfer.from.empty() ? "from" : "to") + " is missing");
  return std::nullopt;
}

template <typename S>
Field<S> transfers_field(std::string_view key, std::vector<Transfer> S::*member, std::string_view doc) {
  auto f = base<S>(key, "[{from: pattern, to: directory}] or none", doc, member);
  f.read = [=](const YAML::Node& node, S& s) -> std::optional<Fault> {
    std::vector<Transfer> all;
    const bool none = node.IsScalar() && node.Scalar() == "none";
    if (!none && !node.IsSequence())
      return at(node,
                "a list like [{from: \"wrfinput*\", to: /local/run}], or none, is wanted, this is " + kind_of(node));
    for (const auto& entry : node)
      if (auto fault = read_transfer(entry, all.emplace_back())) return fault;
    s.*member = std::move(all);
    return std::nullopt;
  };
  f.show = [=](const S& s) {
    std::string out;
    for (const auto& [from, to] : s.*member)
      out += (out.empty() ? "[" : ", ") + ("{from: " + yaml_scalar(from)) + ", to: " + yaml_scalar(to) + "}";
    return out.empty() ? std::string("none") : out + "]";
  };
  return f;
}

template <typename S>
Field<S> with_example(Field<S> field, std::string_view example) {
  field.example = example;
  return field;
}

}  // namespace

const std::vector<Field<StageConfig>>& stage_fields() {
  static const std::vector<Field<StageConfig>> fields = {
      text_field("directory", &StageConfig::directory, "path", false,
                 "Where run directories are made; a directory on a disk makes it a burst buffer."),
      size_or_field("bytes_max", &StageConfig::bytes_max, {}, "auto", "size or auto",
                    "Cap of staged bytes on this node; auto: min(25 % of memory, 80 % of what is free there)."),
      size_field("segment_bytes", &StageConfig::segment_bytes, {1ULL << 20, 1ULL << 30, 4096},
                 "Size of one journal segment: 1MiB to 1GiB, a multiple of 4096 bytes. A stage of more than 32768 of "
                 "them gets larger ones."),
      size_field(
          "warm_bytes", &StageConfig::warm_bytes, {},
          "Stage that the server makes and touches while the program starts, so that the first frames meet no page "
          "fault: best are the bytes of the largest frame; at most bytes_max."),
      duration_field(
          "wait_max", &StageConfig::wait_max,
          "How long a call waits for a server that makes no progress, say for room in a full stage, before it fails."),
      text_field("spill", &StageConfig::spill, "path or null", true,
                 "Where output goes on when the stage is full (datasets' full): a directory on a node-local disk."),
      size_or_field("spill_max", &StageConfig::spill_max, {}, "auto", "size or auto",
                    "Cap of what is there at one time; auto: 80 % of what is free there."),
      choice_field<StageConfig, bool>("drain", &StageConfig::drain_later, "here, later",
                                      {{"here", false}, {"later", true}},
                                      "later: the run ends with its command; `advectio drain` writes the rest, see "
                                      "burst-buffer.md."),
      transfers_field("in", &StageConfig::in, "Copied before the command starts: files and whole directories."),
      transfers_field("out", &StageConfig::out,
                      "Copied after the command has ended, also when it has failed; not for what Advectio writes."),
  };
  return fields;
}

namespace {

/// A parameter of ADIOS2's SST that a writer may be given. `why_not`: it is known, and refused whatever it is.
struct StreamParameter {
  std::string_view name;
  std::string_view values;  ///< separated by ", "; empty: a whole number from `least`; "text": any
  unsigned least = 0;
  std::string_view why_not = {};
};

constexpr std::string_view of_readers = "is a reader's parameter: set it in the program that reads";
constexpr unsigned stream_queue_max = 10000;
constexpr StreamParameter stream_parameters[] = {
    {"QueueLimit", {}, 1},
    {"ReserveQueueLimit", {}, 0},
    {"FirstTimestepPrecious", "true, false"},
    {"DataTransport", "WAN, RDMA, UCX"},
    {"MarshalMethod", "BP5, FFS"},
    {"NetworkInterface", "text"},
    {"QueueFullPolicy", {}, 0, "is always Discard: with Block a reader that stands still would stop the server"},
    {"RendezvousReaderCount", {}, 0, "is always 0: a server that waits for readers would stop the program"},
    {"RegistrationMethod", {}, 0, "is always File: the stream's address is its file"},
    {"OpenTimeoutSecs", {}, 0, of_readers},
    {"AlwaysProvideLatestTimestep", {}, 0, of_readers},
    {"SpeculativePreloadMode", {}, 0, of_readers},
};

std::optional<std::string> wrong_with(const std::string& name, const std::string& value) {
  const auto* const p = std::find_if(std::begin(stream_parameters), std::end(stream_parameters),
                                     [&](const StreamParameter& one) { return one.name == name; });
  if (p == std::end(stream_parameters)) {
    std::vector<std::string> known;
    for (const auto& one : stream_parameters) known.emplace_back(one.name);
    const auto meant = nearest(name, known);
    return "'" + name + "' is no parameter of a stream" +
           (meant.empty() ? "; there are QueueLimit, ReserveQueueLimit, FirstTimestepPrecious, DataTransport, "
                            "MarshalMethod, NetworkInterface"
                          : "; did you mean " + meant + "?");
  }
  if (!p->why_not.empty()) return name + " " + std::string(p->why_not);
  if (p->values == "text") return value.empty() ? std::optional(name + ": a name is wanted") : std::nullopt;
  if (p->values.empty()) {
    const auto number = whole_number<unsigned>(value);
    if (number && *number >= p->least && *number <= stream_queue_max) return std::nullopt;
    return name + ": '" + value + "' is not a whole number from " + range_text(p->least, stream_queue_max);
  }
  for (auto rest = p->values; !rest.empty();) {
    const auto end = std::min(rest.find(", "), rest.size());
    if (rest.substr(0, end) == value) return std::nullopt;
    rest.remove_prefix(std::min(rest.size(), end + 2));
  }
  return name + ": '" + value + "' is none of " + std::string(p->values);
}

Field<DatasetPolicy> stream_field(std::string_view doc) {
  auto f = base<DatasetPolicy>("stream", "{QueueLimit: 2} or none", doc, &DatasetPolicy::stream);
  f.read = [](const YAML::Node& node, DatasetPolicy& s) -> std::optional<Fault> {
    s.stream.clear();
    if (node.IsScalar() && node.Scalar() == "none") return std::nullopt;
    if (!node.IsMap()) return at(node, "a map like {QueueLimit: 2}, or none, is wanted, this is " + kind_of(node));
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return at(entry.first, "a name is wanted, this is " + kind_of(entry.first));
      if (auto fault = wants_scalar(entry.second, "a value")) return fault;
      const auto& name = entry.first.Scalar();
      if (!seen.insert(name).second) return at(entry.first, "'" + name + "' stands there twice");
      if (auto wrong = wrong_with(name, entry.second.Scalar())) return at(entry.first, std::move(*wrong));
      s.stream.emplace_back(name, entry.second.Scalar());
    }
    return std::nullopt;
  };
  f.show = [](const DatasetPolicy& s) {
    if (s.stream.empty()) return std::string("none");
    std::string out = "{";
    for (const auto& [name, value] : s.stream)
      out += (out.size() > 1 ? ", " : "") + yaml_scalar(name) + ": " + yaml_scalar(value);
    return out + "}";
  };
  return f;
}

}  // namespace

bool is_of_storage(std::string_view key) {
  static const std::set<std::string_view> keys = {"codec",  "level", "deflate", "shuffle", "chunks",
                                                  "format", "round", "durable", "stream"};
  return keys.contains(key);
}

namespace {

/// Read by the parser of the config, which knows where rules come from.
Field<DatasetPolicy> outputs_field(std::string_view key, std::string_view doc) {
  auto f = base<DatasetPolicy>(key, "[{path: pattern, ...}] or none", doc, &DatasetPolicy::outputs);
  f.copy = [](const DatasetPolicy& from, DatasetPolicy& to) {
    to.outputs = from.outputs;
    to.processed = from.processed;
  };
  f.show = [](const DatasetPolicy& policy) {
    if (policy.outputs.empty() && policy.processed.empty()) return std::string("none");
    const DatasetPolicy plain;
    std::string out;
    for (const auto& output : policy.outputs) {
      out += (out.empty() ? "[{path: " : ", {path: ") + yaml_scalar(output.path);
      for (const auto& field : dataset_fields())
        if (is_of_storage(field.key) && field.show(output.policy) != field.show(plain))
          out += ", " + std::string(field.key) + ": " + field.show(output.policy);
      out += "}";
    }
    for (const auto& output : policy.processed) out += (out.empty() ? "[" : ", ") + output.text;
    return out + "]";
  };
  return f;
}

}  // namespace

const std::vector<Field<ServerConfig>>& server_fields() {
  static const std::vector<Field<ServerConfig>> fields = {
      count_or_auto_field("threads", &ServerConfig::threads, 1, 1024,
                          "Threads that compress and write; auto: the cores available to the server."),
      flag_field("sprint", &ServerConfig::sprint,
                 "true: when the programs on a node have ended, its server drains with all cores available to it, "
                 "whatever `threads` says; see operations.md."),
      size_field("memory_max", &ServerConfig::memory_max, {1ULL << 20}, "Memory for chunks being compressed."),
      count_field("restarts_max", &ServerConfig::restarts_max, 0, 1000,
                  "How often `advectio run` restarts a server that died."),
      size_or_field(
          "drain_max", &ServerConfig::drain_max, {1ULL << 16}, "none", "size a second or none",
          "Bytes a second that a node's server writes to files at most, on average; when the stage is full the "
          "model waits for it."),
  };
  return fields;
}

const std::vector<Field<ReadersConfig>>& readers_fields() {
  static const std::vector<Field<ReadersConfig>> fields = {
      texts_field(
          "listen", &ReadersConfig::listen, "list of addresses",
          "Where readers on other nodes connect, as tcp:HOST:PORT (port 0: any that is free), or with a network "
          "in place of the host, tcp:10.1.0.0/16:0: each node's own address there. Readers on the run's node "
          "need none."),
      text_field("contact", &ReadersConfig::contact, "path", false,
                 "File by which readers on other nodes find the run; written where it listens. It holds the run's "
                 "secret: only you can read it."),
      size_or_field("memory_max", &ReadersConfig::memory_max, {1ULL << 20}, "auto", "size or auto",
                    "Memory of frames that are in their files and are kept for readers; auto: a quarter of the "
                    "stage's cap. Older ones are read from the file."),
      words_field("programs", &ReadersConfig::programs,
                  "list of netcdf, netcdf4-python, h5py, hdf5plugin, every-netcdf",
                  {"netcdf", "netcdf4-python", "h5py", "hdf5plugin", "every-netcdf"},
                  "Who reads the files: a codec that one of them cannot decode is warned of. netcdf: this machine's "
                  "own netCDF."),
  };
  return fields;
}

namespace {

/// Patterns beside those of the default; `none` alone: no pattern, before others: only those.
Field<OutsideConfig> markers_field(std::string_view doc) {
  auto f = texts_field("markers", &OutsideConfig::markers, "list of patterns or none", doc);
  f.read = [](const YAML::Node& node, OutsideConfig& outside) -> std::optional<Fault> {
    const auto is_none = [](const YAML::Node& one) { return one.IsScalar() && one.Scalar() == "none"; };
    outside.markers = is_none(node) ? std::vector<std::string>() : OutsideConfig().markers;
    if (is_none(node)) return std::nullopt;
    if (!node.IsSequence())
      return at(node, "a list of patterns like [\"*.fin\"], or none, is wanted, this is " + kind_of(node));
    for (std::size_t i = 0; i < node.size(); ++i) {
      const YAML::Node one = node[i];
      if (auto fault = wants_scalar(one, "a pattern")) return fault;
      if (i == 0 && is_none(one)) {
        outside.markers.clear();
        continue;
      }
      const auto& pattern = one.Scalar();
      if (auto good = check_glob(pattern); pattern.empty() || !good)
        return at(one, pattern.empty() ? "this entry is empty" : "'" + pattern + "': " + good.error().message);
      if (std::find(outside.markers.begin(), outside.markers.end(), pattern) == outside.markers.end())
        outside.markers.push_back(pattern);
    }
    return std::nullopt;
  };
  f.show = [](const OutsideConfig& outside) {
    if (outside.markers.empty()) return std::string("none");
    std::string out = "[none";
    for (const auto& one : outside.markers) out += ", " + yaml_scalar(one);
    return out + "]";
  };
  return f;
}

constexpr std::array<std::string_view, 5> events_with_commands = {"begun", "frame", "complete", "durable", "failed"};

/// The fault of a command; empty: none. The command is split as Python's `shlex.split` does.
std::string wrong_with_command(const std::string& event, const std::string& command) {
  char quote = 0;
  bool any = false;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    any = any || std::isspace(static_cast<unsigned char>(c)) == 0;
    if (c == '\\' && quote != '\'' && ++i == command.size()) return "a word is wanted behind the last backslash";
    if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote)
      quote = 0;
  }
  if (!any) return "a command is wanted";
  if (quote != 0) return std::string("the quote ") + quote + " is not closed";
  for (std::size_t i = command.find('{'); i != std::string::npos; i = command.find('{', i + 1)) {
    const auto end = command.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", i + 1);
    if (end == std::string::npos || command[end] != '}' || end == i + 1) continue;
    const auto name = command.substr(i, end - i + 1);
    if (name != "{path}" && name != "{name}" && name != "{frame}")
      return name + " is not known; known are {path}, {name} and {frame}";
    if (name == "{frame}" && event != "frame") return "{frame} is known at the event frame only";
  }
  return {};
}

std::optional<Fault> read_event_command(const YAML::Node& key, const YAML::Node& value, EventCommands& on) {
  if (!key.IsScalar()) return at(key, "a key is wanted here");
  const auto& event = key.Scalar();
  if (event == "at_once") {
    const auto n = value.IsScalar() ? whole_number<unsigned>(value.Scalar()) : std::nullopt;
    if (!n || *n < 1 || *n > 64) return at(key, "at_once: a number is wanted, " + range_text(1, 64));
    on.at_once = *n;
    return std::nullopt;
  }
  if (event == "timeout") {
    if (auto fault = wants_scalar(value, "timeout: a duration like 30s")) return fault;
    const auto duration = parse_duration(value.Scalar());
    if (!duration) return at(value, "timeout: " + duration.error().message);
    on.timeout = *duration;
    return std::nullopt;
  }
  if (std::find(events_with_commands.begin(), events_with_commands.end(), event) == events_with_commands.end())
    return at(key, "unknown key " + event + "; known here: begun, frame, complete, durable, failed, at_once, timeout");
  if (auto fault = wants_scalar(value, event + ": a command")) return fault;
  if (auto wrong = wrong_with_command(event, value.Scalar()); !wrong.empty()) return at(value, event + ": " + wrong);
  on.commands[event] = value.Scalar();
  return std::nullopt;
}

Field<OutsideConfig> on_field(std::string_view doc) {
  auto f = base<OutsideConfig>("on", "{event: command, ...} or none", doc, &OutsideConfig::on);
  f.read = [](const YAML::Node& node, OutsideConfig& outside) -> std::optional<Fault> {
    outside.on = EventCommands();
    if (node.IsScalar() && node.Scalar() == "none") return std::nullopt;
    if (!node.IsMap())
      return at(node,
                "commands like {complete: \"rsync {path} archive:\"}, or none, are wanted, this is " + kind_of(node));
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (entry.first.IsScalar() && !seen.insert(entry.first.Scalar()).second)
        return at(entry.first, "'" + entry.first.Scalar() + "' stands there twice");
      if (auto fault = read_event_command(entry.first, entry.second, outside.on)) return fault;
    }
    return std::nullopt;
  };
  f.show = [](const OutsideConfig& outside) {
    const EventCommands plain;
    const auto& on = outside.on;
    if (on == plain) return std::string("none");
    std::string out;
    const auto add = [&out](const std::string& key, const std::string& value) {
      out += (out.empty() ? "{" : ", ") + key + ": " + value;
    };
    for (const auto& [event, command] : on.commands) add(event, yaml_scalar(command));
    if (on.at_once != plain.at_once) add("at_once", std::to_string(on.at_once));
    if (on.timeout != plain.timeout) add("timeout", duration_text(on.timeout));
    return out + "}";
  };
  return f;
}

}  // namespace

const std::vector<Field<OutsideConfig>>& outside_fields() {
  static const std::vector<Field<OutsideConfig>> fields = {
      markers_field("Names by which programs say that their files are complete: others see such a name when all that "
                    "was closed before it is in the files. Patterns come to those of the default; [none, ...] has "
                    "no others; see operations.md."),
      text_field("events", &OutsideConfig::events, "path or null", true,
                 "A file that gets a line of JSON when a dataset is begun, has a frame, is complete, is durable, or "
                 "fails; see operations.md."),
      with_example(
          on_field("Commands at these events (begun, frame, complete, durable, failed), split into words as a shell "
                   "does it, without a shell; at_once (2) at a time, killed after timeout (5min); see operations.md."),
          "{complete: \"rsync {path} archive:/data/\", at_once: 2, timeout: 5min}"),
  };
  return fields;
}

namespace {

/// Names that programs of a workflow may have; in rules with captures and wildcards.
std::optional<Fault> check_program(const YAML::Node& node, bool is_pattern) {
  const std::string_view more = is_pattern ? "{}*?" : "";
  for (const char c : node.Scalar())
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && std::string_view("_-.").find(c) == std::string_view::npos &&
        more.find(c) == std::string_view::npos)
      return at(node, kind_of(node) + " is no name of a program: letters, digits, _ - . are allowed" +
                          (is_pattern ? ", and {name} and * in rules" : ""));
  return std::nullopt;
}

/// One text or a list of them.
template <typename S>
Field<S> list_field(std::string_view key, std::vector<std::string> S::*member, std::string_view what,
                    std::string_view type, std::string_view doc,
                    std::function<std::optional<Fault>(const YAML::Node&)> check) {
  auto f = base<S>(key, type, doc, member);
  f.read = [=](const YAML::Node& node, S& rule) -> std::optional<Fault> {
    std::vector<std::string> all;
    const auto take = [&](const YAML::Node& one) -> std::optional<Fault> {
      if (auto fault = wants_scalar(one, what)) return fault;
      if (one.Scalar().empty()) return at(one, "an entry is empty");
      all.push_back(one.Scalar());
      return check(one);
    };
    if (node.IsSequence()) {
      for (const auto& one : node)
        if (auto fault = take(one)) return fault;
    } else if (auto fault = take(node)) {
      return fault;
    }
    rule.*member = std::move(all);
    return std::nullopt;
  };
  f.show = [=](const S& rule) {
    std::string out;
    for (const auto& one : rule.*member) out += (out.empty() ? "" : ", ") + yaml_scalar(one);
    return "[" + out + "]";
  };
  return f;
}

}  // namespace

const std::vector<Field<WorkflowConfig>>& workflow_fields() {
  static const std::vector<Field<WorkflowConfig>> fields = [] {
    auto name = text_field("name", &WorkflowConfig::name, "name or null", true,
                           "Of this program in the workflow, as the rules of couple call it (--as).");
    name.read = [](const YAML::Node& node, WorkflowConfig& workflow) -> std::optional<Fault> {
      if (node.IsNull()) {
        workflow.name.clear();
        return std::nullopt;
      }
      if (auto fault = wants_scalar(node, "a name")) return fault;
      workflow.name = node.Scalar();
      return check_program(node, false);
    };
    return std::vector<Field<WorkflowConfig>>{
        text_field("directory", &WorkflowConfig::directory, "path or null", true,
                   "The same for all programs whose files are each other's input (--workflow); see coupling.md."),
        std::move(name),
        texts_field("listen", &WorkflowConfig::listen, "list of addresses",
                    "Where the workflow's other nodes connect, as readers.listen; files go between nodes only where it "
                    "is set, the same for all programs."),
        duration_field("wait_max", &WorkflowConfig::wait_max,
                       "How long a program waits for a file of another before opening it fails."),
        duration_field("restart_max", &WorkflowConfig::restart_max,
                       "The same where the program that should write it has died or failed."),
    };
  }();
  return fields;
}

const std::vector<Field<CoupleRule>>& couple_fields() {
  static const std::vector<Field<CoupleRule>> fields = [] {
    using R = CoupleRule;
    const auto pattern = [](const YAML::Node& node) -> std::optional<Fault> {
      if (auto good = check_couple_pattern(node.Scalar()); !good)
        return at(node, kind_of(node) + ": " + good.error().message);
      if (node.Scalar().find('/') != std::string::npos &&
          std::string_view("/*?[{").find(node.Scalar().front()) == std::string_view::npos)
        return at(node, kind_of(node) +
                            " can match nothing: with a / in it, it is held against the absolute path; begin it with / "
                            "or */");
      return std::nullopt;
    };
    const auto program = [](const YAML::Node& node) { return check_program(node, true); };
    const auto plain = [](const YAML::Node& node) -> std::optional<Fault> {
      if (auto good = check_glob(node.Scalar()); !good) return at(node, kind_of(node) + ": " + good.error().message);
      return std::nullopt;
    };
    auto match = base<R>("match", "pattern",
                         "Which files: as of datasets; {name} stands for a part of the name and may be used in from "
                         "and to.",
                         &R::match);
    match.read = [pattern](const YAML::Node& node, R& rule) -> std::optional<Fault> {
      if (auto fault = wants_scalar(node, "a pattern like \"history.*\"")) return fault;
      rule.match = node.Scalar();
      return pattern(node);
    };
    match.show = [](const R& rule) { return yaml_scalar(rule.match); };
    return std::vector<Field<R>>{
        std::move(match),
        list_field("from", &R::from, "a name", "name or [names]", "Programs that write them.", program),
        list_field("to", &R::to, "a name", "name or [names]", "Programs that read them, and wait for them.", program),
        choice_field<R, R::Mode>(
            "mode", &R::mode, "memory, memory+file, file",
            {{"memory", R::Mode::memory}, {"memory+file", R::Mode::memory_and_file}, {"file", R::Mode::file}},
            "memory: the file is nowhere else; memory+file: and on the disk; file: on the disk alone, and readers wait "
            "until it is complete."),
        choice_field<R, R::When>("when", &R::when, "close, sync", {{"close", R::When::close}, {"sync", R::When::sync}},
                                 "sync: readers get what there is after each nc_sync, not only the closed file."),
        choice_field<R, R::Keep>(
            "keep", &R::keep, "workflow, read", {{"workflow", R::Keep::workflow}, {"read", R::Keep::read}},
            "read: its memory is free when all programs that read it have ended; else when no program is left."),
        list_field("exclude", &R::exclude, "a pattern", "pattern or [patterns]",
                   "Files that match, and are not coupled.", plain),
        list_field("variables", &R::variables, "a pattern", "pattern or [patterns]",
                   "Variables that the file in memory has; [] for all. For memory+file only.", plain),
    };
  }();
  return fields;
}

namespace {

std::optional<Fault> check_set_pattern(const YAML::Node& node) {
  const auto& pattern = node.Scalar();
  const auto first = pattern.find("{instant}");
  if (first == std::string::npos || pattern.find("{instant}", first + 1) != std::string::npos)
    return at(node, kind_of(node) + " must have {instant} once, in the place of the text that names the instant");
  if (auto good = check_glob(set_glob(pattern)); !good) return at(node, kind_of(node) + ": " + good.error().message);
  if (pattern.find('/') != std::string::npos && pattern[0] != '/' && pattern[0] != '*')
    return at(node, kind_of(node) +
                        " can match nothing: with a / in it, it is held against the absolute path; begin it with / or "
                        "*/");
  return std::nullopt;
}

Field<SetRule> set_name_field() {
  auto f = base<SetRule>("name", "name", "What messages call it.", &SetRule::name);
  f.read = [](const YAML::Node& node, SetRule& rule) -> std::optional<Fault> {
    if (auto fault = wants_scalar(node, "a name")) return fault;
    if (node.Scalar().empty()) return at(node, "the name is empty");
    rule.name = node.Scalar();
    return std::nullopt;
  };
  f.show = [](const SetRule& rule) { return yaml_scalar(rule.name); };
  return f;
}

Field<SetRule> keep_field(std::string_view doc) {
  auto f = base<SetRule>("keep", "whole number or none", doc, &SetRule::keep);
  f.read = [](const YAML::Node& node, SetRule& rule) -> std::optional<Fault> {
    rule.keep = std::nullopt;
    if (node.IsScalar() && node.Scalar() == "none") return std::nullopt;
    const auto n = node.IsScalar() ? whole_number<unsigned>(node.Scalar()) : std::nullopt;
    if (!n || *n < 1 || *n > 10000)
      return at(node, kind_of(node) + " is not a whole number from " + range_text(1, 10000) + ", or none");
    rule.keep = *n;
    return std::nullopt;
  };
  f.show = [](const SetRule& rule) { return rule.keep ? std::to_string(*rule.keep) : std::string("none"); };
  return f;
}

}  // namespace

const std::vector<Field<SetRule>>& set_fields() {
  static const std::vector<Field<SetRule>> fields = {
      set_name_field(),
      list_field(
          "match", &SetRule::match, "a pattern", "pattern or [patterns]",
          "Its files, one of each pattern: as of datasets; {instant} stands for the text that names the instant.",
          check_set_pattern),
      text_field("link", &SetRule::link, "path", false,
                 "A symbolic link to a directory that has the newest whole set. A relative path begins where the job "
                 "was started."),
      text_field("pointer", &SetRule::pointer, "path or null", true,
                 "A file that lists the files of the newest whole set, a path a line."),
      keep_field("How many whole sets stay; the files of older ones are removed. none: nothing is ever removed."),
      list_field("members", &SetRule::members, "a name", "name or [names]",
                 "Programs that each write a part of it (--as); [] where one program writes all.",
                 [](const YAML::Node& node) { return check_program(node, false); }),
  };
  return fields;
}

const std::vector<Field<LogConfig>>& log_fields() {
  static const std::vector<Field<LogConfig>> fields = {
      choice_field<LogConfig, LogLevel>("level", &LogConfig::level, "error, warning, info, debug",
                                        {{"error", LogLevel::error},
                                         {"warning", LogLevel::warning},
                                         {"info", LogLevel::info},
                                         {"debug", LogLevel::debug}},
                                        "What the server says on stderr and in its log."),
      text_field("file", &LogConfig::file, "path or null", true, "Also append the log to this file."),
  };
  return fields;
}

Field<DatasetPolicy> codec_field() {
  using P = DatasetPolicy;
  auto f = choice_field<P, Codec>("codec", &P::codec, "asked, none, deflate, zstd, lz4, blosc-lz4, blosc-zstd, szip",
                                  {{"asked", Codec::asked},
                                   {"none", Codec::none},
                                   {"deflate", Codec::deflate},
                                   {"zstd", Codec::zstd},
                                   {"lz4", Codec::lz4},
                                   {"blosc-lz4", Codec::blosc_lz4},
                                   {"blosc-zstd", Codec::blosc_zstd},
                                   {"szip", Codec::szip}},
                                  "Compression; asked: what the program asked for.");
  f.read = [read = f.read](const YAML::Node& node, P& policy) {
    auto fault = read(node, policy);
    if (fault && node.IsScalar() && (node.Scalar() == "gzip" || node.Scalar() == "zlib"))
      fault->text += "; " + node.Scalar() + " is deflate";
    return fault;
  };
  return f;
}

const std::vector<Field<DatasetPolicy>>& dataset_fields() {
  using P = DatasetPolicy;
  static const std::vector<Field<P>> fields = {
      flag_field("capture", &P::capture, "false: leave these datasets to the netCDF library."),
      codec_field(),
      count_or_auto_field(
          "level", &P::level, 0, 22,
          "Level on the codec's own scale (deflate by isal 0-3, by libdeflate 1-12, zstd 1-22, blosc 1-9); "
          "stands in the same rule as its codec."),
      choice_field<P, DeflateBy>("deflate", &P::deflate, "isal, libdeflate",
                                 {{"isal", DeflateBy::isal}, {"libdeflate", DeflateBy::libdeflate}},
                                 "Who makes deflate streams: isal is fast, libdeflate makes them smaller."),
      choice_field<P, Shuffle>(
          "shuffle", &P::shuffle, "asked, none, byte, bit",
          {{"asked", Shuffle::asked}, {"none", Shuffle::none}, {"byte", Shuffle::byte}, {"bit", Shuffle::bit}},
          "Shuffle before compression; asked: what the program asked for."),
      with_example(map_field<P, std::uint64_t>("chunks", &P::chunks, "asked", "{bottom_top: 1} or asked", 1,
                                               std::numeric_limits<std::uint64_t>::max(), false,
                                               "Chunk length per dimension name; dimensions not named stay as asked."),
                   "{bottom_top: 1}"),
      choice_field<P, std::optional<FileFormat>>(
          "format", &P::format, "asked, netcdf4, netcdf4-classic, classic, 64bit-offset, cdf5, zarr, bp5, sst",
          {{"asked", std::nullopt},
           {"netcdf4", FileFormat::netcdf4},
           {"netcdf4-classic", FileFormat::netcdf4_classic},
           {"classic", FileFormat::classic},
           {"64bit-offset", FileFormat::offset64},
           {"cdf5", FileFormat::cdf5},
           {"zarr", FileFormat::zarr},
           {"bp5", FileFormat::bp5},
           {"sst", FileFormat::sst}},
          "File format; asked: what the program asked for; zarr: a directory "
          "NAME.zarr in place of the file, see sinks/zarr.md; bp5: NAME.bp of "
          "ADIOS2, and sst: a stream of ADIOS2, see sinks/bp5.md."),
      with_example(
          map_field<P, unsigned>("round", &P::round, "none", "{T: 10, \"*\": 12} or none", 1, 52, true,
                                 "Significant bits to keep per floating-point variable (name or pattern): lossy, "
                                 "and recorded in the file."),
          "{T: 10, \"*\": 12}"),
      with_example(stream_field("format: sst: parameters of ADIOS2's SST, by its names; see sinks/bp5.md."),
                   "{QueueLimit: 2}"),
      flag_field("durable", &P::durable, "true: what is committed is also fsynced (fdatasync after each commit)."),
      choice_field<P, CloseMode>("close", &P::close, "async, wait",
                                 {{"async", CloseMode::async}, {"wait", CloseMode::wait}},
                                 "async: nc_close returns at once; wait: when the file is complete."),
      choice_field<P, Promise>(
          "promise", &P::promise, "staged, visible, durable",
          {{"staged", Promise::staged}, {"visible", Promise::visible}, {"durable", Promise::durable}},
          "How far a frame has got when nc_sync or nc_close returns: it survives the program, is in the file, is on "
          "the disk; see promises.md."),
      choice_field<P, WhenFull>(
          "full", &P::full, "auto, wait, spill, drop-frame",
          {{"auto", WhenFull::automatic},
           {"wait", WhenFull::wait},
           {"spill", WhenFull::spill},
           {"drop-frame", WhenFull::drop_frame}},
          "When the stage is full: wait for room, go on in stage.spill, or leave out whole frames; "
          "auto: spill where there is a stage.spill, else wait."),
      choice_field<P, Priority>("priority", &P::priority, "normal, high",
                                {{"normal", Priority::normal}, {"high", Priority::high}},
                                "high: when several files have frames in the stage, those of this one are written "
                                "first. Files of `sets` have it unless a rule says normal; see operations.md."),
      choice_field<P, Appear>(
          "appear", &P::appear, "frame, complete, create",
          {{"frame", Appear::frame}, {"complete", Appear::complete}, {"create", Appear::create}},
          "When others see a new file by its name: with its first frame, when it is complete, or, empty at first, when "
          "the program creates it; see operations.md."),
      choice_field<P, Frames>(
          "frames", &P::frames, "auto, sync, record",
          {{"auto", Frames::automatic}, {"sync", Frames::sync}, {"record", Frames::record}},
          "The end of a frame. sync: nc_sync; record: also the first block of the next record; auto: that block if all "
          "variables of the record have been put. The close of the file ends a frame, too; see promises.md."),
      flag_field("join", &P::join,
                 "true: the tiles that ranks write (match fits their names) become one file on the way out, see "
                 "split-files.md."),
      with_example(outputs_field("outputs",
                                 "Further files of the same output, each stored in its own way, beside the one that "
                                 "the program asked for; with the keys of `advectio process` what operators make of "
                                 "it, see process.md."),
                   "[{path: \"small/{name}\", codec: zstd, round: {\"*\": 12}}]"),
  };
  return fields;
}

std::string yaml_scalar(const std::string& text) {
  static const std::set<std::string> words = {"null",  "Null", "NULL", "~",  "true", "True", "TRUE",  "false", "False",
                                              "FALSE", "yes",  "no",   "on", "off",  "auto", "asked", "none",  "-"};
  bool plain = !text.empty() && !words.contains(text);
  for (const char c : text)
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '/' || c == '.' || c == '-');
  if (plain && text.front() != '-' && text.front() != '.') return text;
  std::string out = "\"";
  constexpr std::string_view hex = "0123456789abcdef";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u == 0x7f) {
      out += "\\x";
      out += hex[u >> 4];
      out += hex[u & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string flow_text(const YAML::Node& node) {
  std::string out;
  if (node.IsSequence()) {
    for (const auto& one : node) out += (out.empty() ? "" : ", ") + flow_text(one);
    return "[" + out + "]";
  }
  if (node.IsMap()) {
    for (const auto& entry : node)
      out += (out.empty() ? "" : ", ") + flow_text(entry.first) + ": " + flow_text(entry.second);
    return "{" + out + "}";
  }
  if (node.IsNull()) return "null";
  const auto& text = node.Scalar();
  return text == "true" || text == "false" ? text : yaml_scalar(text);
}

std::optional<LevelRange> level_range(Codec codec, DeflateBy by) {
  switch (codec) {
    case Codec::deflate: return by == DeflateBy::isal ? LevelRange{0, 3} : LevelRange{1, 12};
    case Codec::zstd: return LevelRange{1, 22};
    case Codec::blosc_lz4:
    case Codec::blosc_zstd: return LevelRange{1, 9};
    case Codec::asked:
    case Codec::none:
    case Codec::lz4:
    case Codec::szip: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Fault> check_storage(const std::string& where, const YAML::Node& item, const DatasetRule& rule) {
  const auto line = [&](const char* key) { return line_of_key(item, key); };
  const DatasetPolicy& v = rule.values;
  const bool names_codec = rule.sets("codec") && v.codec != Codec::asked;
  if (v.level) {
    if (!names_codec)
      return Fault{line("level"), where + ".level: the scale belongs to a codec; name the codec in the same rule"};
    const auto range = config::level_range(v.codec, v.deflate);
    const std::string codec(name_of(v.codec));
    if (!range) return Fault{line("level"), where + ".level: codec " + codec + " has no levels; leave it out"};
    if (*v.level < range->least || *v.level > range->most) {
      std::string text = where + ".level: " + std::to_string(*v.level) + " is outside " + std::to_string(range->least) +
                         " to " + std::to_string(range->most) + " of " + codec;
      if (v.codec == Codec::deflate) {
        text += " by " + std::string(name_of(v.deflate));
        if (v.deflate == DeflateBy::isal && *v.level <= 12)
          text += "; for higher levels say deflate: libdeflate in the same rule";
      }
      return Fault{line("level"), text};
    }
  }
  if (v.format == FileFormat::zarr && names_codec && v.codec == Codec::szip)
    return Fault{line("codec"), where +
                                    ".codec: szip cannot be: Zarr has no such codec; take deflate, zstd, lz4, "
                                    "blosc-lz4 or blosc-zstd"};
  if (v.format == FileFormat::bp5 || v.format == FileFormat::sst) {
    const bool has = v.codec == Codec::none || v.codec == Codec::blosc_lz4 || v.codec == Codec::blosc_zstd;
    if (names_codec && !has)
      return Fault{line("codec"), where + ".codec: " + std::string(name_of(v.codec)) +
                                      " cannot be: of our codecs ADIOS2 has blosc-lz4 and blosc-zstd"};
    if (!v.chunks.empty())
      return Fault{line("chunks"), where + ".chunks cannot be: ADIOS2 has blocks as they were put"};
  }
  if (!v.stream.empty() && v.format != FileFormat::sst)
    return Fault{line("stream"), where + ".stream is of a stream; name format: sst in the same rule"};
  if (v.format && is_classic(*v.format)) {
    if (names_codec && v.codec != Codec::none)
      return Fault{line("codec"), where + ".codec: " + std::string(name_of(v.codec)) +
                                      " cannot be: the classic formats have no compression"};
    if (!v.chunks.empty())
      return Fault{line("chunks"), where + ".chunks cannot be: the classic formats have no chunks"};
  }
  return std::nullopt;
}

}  // namespace advectio::config
