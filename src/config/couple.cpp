#include "config/couple.h"

#include <regex.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "config/glob.h"

namespace advectio {
namespace {

/// A pattern as an extended regular expression: {name} becomes a group that holds no slash.
std::string expression_of(const std::string& pattern) {
  std::string out = "^";
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '*') {
      out += ".*";
    } else if (c == '?') {
      out += '.';
    } else if (c == '{') {
      out += "([^/]+)";
      i = pattern.find('}', i);
    } else if (c == '[') {
      const auto end = pattern.find(']', i + 2 + (pattern[i + 1] == '!' || pattern[i + 1] == '^' ? 1 : 0));
      auto set = pattern.substr(i, end - i + 1);
      if (set[1] == '!') set[1] = '^';
      out += set;
      i = end;
    } else {
      const char literal = c == '\\' ? pattern[++i] : c;
      if (std::string_view("^.[$()|*+?{\\").find(literal) != std::string_view::npos) out += '\\';
      out += literal;
    }
  }
  return out + "$";
}

std::string base_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

constexpr char between = '\t', in_list = '\v';  // no pattern that is accepted holds them

std::string listed(const std::vector<std::string>& texts) {
  std::string out;
  for (const auto& text : texts) out += (out.empty() ? "" : std::string(1, in_list)) + text;
  return out;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) out.push_back(part);
  return out;
}

}  // namespace

std::string_view name_of(CoupleRule::Mode mode) noexcept {
  switch (mode) {
    case CoupleRule::Mode::memory: return "memory";
    case CoupleRule::Mode::memory_and_file: return "memory+file";
    case CoupleRule::Mode::file: return "file";
  }
  return "unknown";
}

std::string_view name_of(CoupleRule::When when) noexcept {
  return when == CoupleRule::When::close ? "close" : "sync";
}

std::string_view name_of(CoupleRule::Keep keep) noexcept {
  return keep == CoupleRule::Keep::workflow ? "workflow" : "read";
}

std::vector<std::string> captures_of(const std::string& pattern) {
  std::vector<std::string> names;
  for (auto at = pattern.find('{'); at != std::string::npos; at = pattern.find('{', at + 1)) {
    const auto end = pattern.find('}', at);
    if (end == std::string::npos) break;
    names.push_back(pattern.substr(at + 1, end - at - 1));
  }
  return names;
}

Result<void> check_couple_pattern(const std::string& pattern) {
  ADVECTIO_TRY(check_glob(pattern));
  if (pattern.find_first_of("\t\v\n") != std::string::npos)
    return Error{Code::config, "the pattern has a control character"};
  for (auto at = pattern.find('{'); at != std::string::npos; at = pattern.find('{', at + 1)) {
    const auto end = pattern.find_first_of("{}", at + 1);
    if (end == std::string::npos || pattern[end] != '}' || end == at + 1)
      return Error{Code::config, "the pattern has a '{' that begins no {name}"};
  }
  auto names = captures_of(pattern);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    return Error{Code::config, "the pattern has {" + *twice + "} twice"};
  return {};
}

std::optional<Captures> couples(const CoupleRule& rule, const std::string& path) {
  const auto excluded = [&path](const std::string& pattern) { return dataset_matches(pattern, path); };
  const auto names = captures_of(rule.match);
  Captures captures;
  if (names.empty()) {
    if (!dataset_matches(rule.match, path)) return std::nullopt;
  } else {
    regex_t compiled;
    if (::regcomp(&compiled, expression_of(rule.match).c_str(), REG_EXTENDED) != 0) return std::nullopt;
    const std::unique_ptr<regex_t, void (*)(regex_t*)> guard(&compiled, &::regfree);
    const auto text = rule.match.find('/') != std::string::npos ? path : base_of(path);
    std::vector<regmatch_t> groups(names.size() + 1);
    if (::regexec(&compiled, text.c_str(), groups.size(), groups.data(), 0) != 0) return std::nullopt;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& g = groups[i + 1];
      captures[names[i]] = text.substr(static_cast<std::size_t>(g.rm_so), static_cast<std::size_t>(g.rm_eo - g.rm_so));
    }
  }
  if (std::any_of(rule.exclude.begin(), rule.exclude.end(), excluded)) return std::nullopt;
  return captures;
}

std::vector<std::string> filled_in(const std::vector<std::string>& names, const Captures& captures) {
  auto out = names;
  for (auto& name : out)
    for (const auto& [capture, text] : captures) {
      const auto wanted = "{" + capture + "}";
      for (auto at = name.find(wanted); at != std::string::npos; at = name.find(wanted, at + text.size()))
        name.replace(at, wanted.size(), text);
    }
  return out;
}

std::string to_line(const CoupleRule& rule) {
  std::string line = "couple";
  for (const auto& field :
       {std::string(name_of(rule.mode)), std::string(name_of(rule.when)), std::string(name_of(rule.keep)), rule.match,
        listed(rule.from), listed(rule.to), listed(rule.exclude), listed(rule.variables), rule.origin})
    line += between + field;
  return line;
}

std::optional<CoupleRule> couple_rule_of_line(const std::string& line) {
  const auto fields = split(line, between);
  if (fields.size() != 10 || fields[0] != "couple") return std::nullopt;
  CoupleRule rule;
  for (const auto mode : {CoupleRule::Mode::memory, CoupleRule::Mode::memory_and_file, CoupleRule::Mode::file})
    if (name_of(mode) == fields[1]) rule.mode = mode;
  rule.when = fields[2] == "sync" ? CoupleRule::When::sync : CoupleRule::When::close;
  rule.keep = fields[3] == "read" ? CoupleRule::Keep::read : CoupleRule::Keep::workflow;
  rule.match = fields[4];
  rule.from = split(fields[5], in_list);
  rule.to = split(fields[6], in_list);
  rule.exclude = split(fields[7], in_list);
  rule.variables = split(fields[8], in_list);
  rule.origin = fields[9];
  return rule;
}

}  // namespace advectio
