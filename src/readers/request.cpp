#include "readers/request.h"

#include <limits>
#include <map>

namespace advectio::readers {

using nlohmann::json;

namespace {

constexpr std::size_t patterns_max = 64, text_max = 8192, rank_max = 1024, variables_max = 1U << 16;

Error bad(const std::string& what) {
  return Error{Code::invalid, what, 0};
}

bool is_whole(const json& x) {
  return x.is_number_unsigned() || (x.is_number_integer() && x.get<std::int64_t>() >= 0);
}

/// Takes keys out of an object. The first that is wrong is remembered.
class Keys {
 public:
  explicit Keys(const json& object) : object_(object) {}

  template <typename T>
  void number(const char* key, T& out, std::uint64_t most = std::numeric_limits<T>::max()) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!is_whole(*it) || it->template get<std::uint64_t>() > most) return wrong(key, "a whole number");
    out = it->template get<T>();
  }
  void text(const char* key, std::string& out) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_string() || it->get_ref<const std::string&>().size() > text_max) return wrong(key, "a text");
    out = it->get<std::string>();
  }
  void flag(const char* key, bool& out) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_boolean()) return wrong(key, "true or false");
    out = it->get<bool>();
  }
  template <typename T>
  void numbers(const char* key, std::vector<T>& out, std::size_t most) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_array() || it->size() > most) return wrong(key, "a list of whole numbers");
    for (const auto& x : *it) {
      if (!is_whole(x) || x.get<std::uint64_t>() > std::numeric_limits<T>::max())
        return wrong(key, "a list of whole numbers");
      out.push_back(x.get<T>());
    }
  }
  void texts(const char* key, std::vector<std::string>& out, std::size_t most) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_array() || it->size() > most) return wrong(key, "a list of texts");
    for (const auto& x : *it) {
      if (!x.is_string() || x.get_ref<const std::string&>().size() > text_max) return wrong(key, "a list of texts");
      out.push_back(x.get<std::string>());
    }
  }
  void wrong(const char* key, const char* wanted) {
    if (error_.empty()) error_ = std::string(key) + " is not " + wanted;
  }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  const json& object_;
  std::string error_;
};

}  // namespace

Result<Request> parse_request(const json& object) {
  static const std::map<std::string, Request::Kind> kinds = {
      {"hello", Request::Kind::hello},  {"list", Request::Kind::list},     {"subscribe", Request::Kind::subscribe},
      {"next", Request::Kind::next},    {"schema", Request::Kind::schema}, {"read", Request::Kind::read},
      {"map", Request::Kind::map},      {"done", Request::Kind::done},     {"unsubscribe", Request::Kind::unsubscribe},
      {"status", Request::Kind::status}};
  if (!object.is_object()) return bad("a request is a JSON object");
  Request out;
  Keys keys(object);
  std::string what, policy;
  keys.text("do", what);
  keys.number("id", out.id);
  if (!keys.error().empty()) return bad(keys.error());
  const auto kind = kinds.find(what);
  if (kind == kinds.end()) return bad("unknown request '" + what + "'");
  out.kind = kind->second;
  std::uint64_t version = protocol_version, after = 0;
  keys.number("protocol", version);
  keys.text("secret", out.secret);
  keys.text("name", out.name);
  keys.text("ucx", out.ucx);
  keys.texts("match", out.match, patterns_max);
  keys.text("policy", policy);
  keys.number("depth", out.depth, 1U << 20);
  keys.number("history", out.history);
  keys.number("after", after);
  keys.text("group", out.group);
  keys.text("reader", out.reader);
  keys.number("servers", out.servers, 1U << 20);
  keys.number("subscription", out.subscription);
  keys.number("wait_ms", out.wait_ms, 3'600'000);
  keys.number("schema", out.schema);
  keys.number("frame", out.frame);
  keys.number("variable", out.variable);
  keys.numbers("start", out.part.box.start, rank_max);
  keys.numbers("count", out.part.box.count, rank_max);
  keys.numbers("stride", out.part.stride, rank_max);
  keys.flag("by_ucx", out.by_ucx);
  keys.numbers("variables", out.variables, variables_max);
  keys.number("from", out.from);
  if (!keys.error().empty()) return bad(keys.error());
  if (version != protocol_version)
    return bad("this server speaks protocol " + std::to_string(protocol_version) + ", not " + std::to_string(version));
  if (object.contains("after")) out.after = after;
  if (policy == "drop-oldest")
    out.policy = Policy::drop_oldest;
  else if (policy == "latest")
    out.policy = Policy::latest;
  else if (!policy.empty() && policy != "wait")
    return bad("the policy is wait, drop-oldest or latest, not '" + policy + "'");
  if (out.depth == 0) return bad("a depth of 0 would leave out every frame");
  if (out.kind == Request::Kind::subscribe && out.match.empty())
    return bad("a subscription says in 'match' which files are meant");
  if (out.kind == Request::Kind::read &&
      (out.part.box.start.size() != out.part.box.count.size() ||
       (!out.part.stride.empty() && out.part.stride.size() != out.part.box.start.size())))
    return bad("'start', 'count' and 'stride' are of the same length");
  return out;
}

}  // namespace advectio::readers
