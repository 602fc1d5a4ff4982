#include "config/yaml_text.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace advectio::config {
namespace {

/// Where the documents of a text begin.
class Beginnings final : public YAML::EventHandler {
 public:
  /// Of the first two; more are of no interest. YAML::LoadAll would look for all, and at some texts stays for ever
  /// where it is, taking memory for each empty document that it finds there.
  static std::vector<YAML::Mark> of(const std::string& text) {
    std::istringstream in(text);
    YAML::Parser parser(in);
    Beginnings found;
    while (found.marks_.size() < 2 && parser.HandleNextDocument(found)) found.within_ = false;
    return found.marks_;
  }
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { note(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { note(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override { note(mark); }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    note(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    note(mark);
  }
  void OnMapEnd() override {}

 private:
  void note(const YAML::Mark& mark) {
    if (!std::exchange(within_, true)) marks_.push_back(mark);
  }
  std::vector<YAML::Mark> marks_;
  bool within_ = false;
};

/// Why text may not be YAML, where the parser speaks of what it expected.
std::string hint(const std::string& complaint) {
  if (complaint.find("alias") != std::string::npos || complaint.find("anchor") != std::string::npos)
    return "; a pattern that begins with * or & stands in quotes";
  if (complaint == YAML::ErrorMsg::END_OF_MAP_FLOW || complaint == YAML::ErrorMsg::END_OF_SEQ_FLOW)
    return "; is a } or ] missing? A name with {…} in it stands in quotes";
  for (const std::string_view of_indentation :
       {YAML::ErrorMsg::END_OF_MAP, YAML::ErrorMsg::END_OF_SEQ, YAML::ErrorMsg::BLOCK_ENTRY, YAML::ErrorMsg::MAP_KEY,
        YAML::ErrorMsg::MAP_VALUE})
    if (complaint == of_indentation) return "; is this line, or one above it, indented otherwise than its neighbours?";
  return {};
}

/// The first of so many lines that is indented with a tab, counted from 1; 0: none is.
int line_with_tab(std::string_view text, int lines) {
  for (int line = 1; line <= lines && !text.empty(); ++line) {
    const auto first = text.find_first_not_of(' ');
    if (first != std::string_view::npos && text[first] == '\t') return line;
    const auto end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return 0;
}

constexpr std::size_t config_bytes_max = 1 << 20;

}  // namespace

Result<std::string> read_text(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (!file) return system_error("config " + path, errno);
  std::string text;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, n);
    if (text.size() > config_bytes_max)
      return Error{Code::config, "config " + path + ": it is larger than 1 MiB, which no config is", 0};
  }
  if (std::ferror(file.get()) != 0) return system_error("config " + path, errno);
  return text;
}

std::optional<Fault> load_yaml(std::string_view text, YAML::Node& root) {
  std::vector<YAML::Mark> beginnings;
  try {
    const std::string whole(text);
    beginnings = Beginnings::of(whole);
    root = YAML::Load(whole);
  } catch (const YAML::Exception& e) {
    const int line = std::max(e.mark.line + 1, 1);
    if (const int tab = line_with_tab(text, line); tab > 0)
      return Fault{tab, "not YAML: the line is indented with a tab; YAML takes blanks only"};
    return Fault{line, "not YAML: " + e.msg + hint(e.msg)};
  }
  if (beginnings.size() > 1) {
    const bool stuck = beginnings[1].pos <= beginnings[0].pos;
    return Fault{beginnings[1].line + 1,
                 stuck ? "not YAML: what stands here belongs nowhere" : "a second YAML document; only one is read"};
  }
  return std::nullopt;
}

int line_of_key(const YAML::Node& map, std::string_view key) {
  for (const auto& entry : map)
    if (entry.first.IsScalar() && entry.first.Scalar() == key) return line_of(entry.first);
  return line_of(map);
}

}  // namespace advectio::config
