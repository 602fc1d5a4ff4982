#include "operators/references.h"

#include <algorithm>
#include <set>

#include "operators/values.h"

namespace advectio {
namespace {

/// WRF pads texts with zeros.
std::vector<std::string> words_in(const Variable& v, const char* attribute) {
  auto text = text_of(v.attributes, attribute);
  std::replace(text.begin(), text.end(), '\0', ' ');
  return words_of(text);
}

void keep_words(Variable& v, const char* attribute, const std::vector<std::string>& all,
                const std::vector<std::string>& kept) {
  if (kept.size() == all.size()) return;
  if (kept.empty()) return remove_attribute(v.attributes, attribute);
  std::string text;
  for (const auto& word : kept) text += (text.empty() ? "" : " ") + word;
  set_text(v.attributes, attribute, text);
}

}  // namespace

std::vector<std::string> formula_terms_of(const Variable& v) {
  auto words = words_in(v, "formula_terms");
  std::erase_if(words, [](const std::string& word) { return word.ends_with(':'); });
  return words;
}

std::map<std::string, std::string> named_terms_of(const Variable& v) {
  std::map<std::string, std::string> out;
  std::string term;
  for (auto& word : words_in(v, "formula_terms")) {
    if (word.ends_with(':')) {
      term = word.substr(0, word.size() - 1);
    } else if (!term.empty()) {
      out[term] = std::move(word);
      term.clear();
    }
  }
  return out;
}

void drop_dangling_names(Schema& schema) {
  std::set<std::string> there, elsewhere;
  for (const auto& v : schema.variables) there.insert(v.name);
  for (auto& word : words_of(text_of(schema.attributes, "external_variables"))) elsewhere.insert(std::move(word));
  const auto missing = [&](const std::string& word) { return !there.contains(word); };
  for (auto& v : schema.variables) {
    for (const char* list : {"coordinates", "ancillary_variables"}) {
      const auto words = words_in(v, list);
      auto kept = words;
      std::erase_if(kept, missing);
      keep_words(v, list, words, kept);
    }
    // "area: areacella volume: volcello"
    const auto measures = words_in(v, "cell_measures");
    std::vector<std::string> kept;
    for (std::size_t i = 0; i + 1 < measures.size(); i += 2)
      if (!missing(measures[i + 1]) || elsewhere.contains(measures[i + 1]))
        kept.insert(kept.end(), {measures[i], measures[i + 1]});
    if (measures.size() % 2 == 0) keep_words(v, "cell_measures", measures, kept);
    for (const char* whole : {"bounds", "climatology"}) {
      const auto words = words_in(v, whole);
      if (std::any_of(words.begin(), words.end(), missing)) remove_attribute(v.attributes, whole);
    }
    const auto terms = formula_terms_of(v);
    if (std::any_of(terms.begin(), terms.end(), missing)) remove_attribute(v.attributes, "formula_terms");
    // "crs", or "crs: x y geographic: lat lon".
    auto mappings = words_in(v, "grid_mapping");
    if (mappings.size() > 1) std::erase_if(mappings, [](const std::string& word) { return !word.ends_with(':'); });
    for (auto& word : mappings)
      if (word.ends_with(':')) word.pop_back();
    if (std::any_of(mappings.begin(), mappings.end(), missing)) remove_attribute(v.attributes, "grid_mapping");
  }
}

}  // namespace advectio
