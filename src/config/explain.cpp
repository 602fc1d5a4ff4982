// The config told back: as a table, as JSON, as YAML, as a commented example, and as the tables of the reference page.
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "config/fields.h"

namespace advectio {
namespace {

constexpr std::string_view kStageDoc = "Where output waits between the model and its file.";
constexpr std::string_view kServerDoc = "The process that drains the stage into files, one per node.";
constexpr std::string_view kReadersDoc = "Live readers of this run, and what reads its files.";
constexpr std::string_view kWorkflowDoc = "Programs whose files are each other's input.";
constexpr std::string_view kLogDoc = "What is said, and where.";
constexpr std::string_view kOutsideDoc = "For programs outside the run.";

std::string_view doc_of(const std::string& section) {
  if (section == "stage") return kStageDoc;
  if (section.empty()) return kOutsideDoc;
  if (section == "readers") return kReadersDoc;
  if (section == "workflow") return kWorkflowDoc;
  return section == "server" ? kServerDoc : kLogDoc;
}

template <typename Section>
ExplainedValue explain_field(const std::string& full, const config::Field<Section>& field, const Section& section,
                             const std::string& origin) {
  return {full, field.show(section), origin, std::string(field.type), std::string(field.doc), field.number(section)};
}

nlohmann::ordered_json json_of(const ExplainedValue& v) {
  nlohmann::ordered_json j;
  j["key"] = v.key;
  j["value"] = v.value;
  j["origin"] = v.origin;
  j["type"] = v.type;
  j["doc"] = v.doc;
  j["number"] = v.number ? nlohmann::ordered_json(*v.number) : nlohmann::ordered_json(nullptr);
  return j;
}

std::vector<ExplainedValue> explain_rule(const DatasetRule& rule) {
  std::vector<ExplainedValue> values;
  for (const auto& field : config::dataset_fields()) {
    const std::string key(field.key);
    if (rule.sets(key)) values.push_back(explain_field(key, field, rule.values, rule.origins.at(key)));
  }
  return values;
}

std::string table_row(std::string_view key, std::string_view what, std::string_view fallback, std::string_view doc) {
  std::string row = "| `" + std::string(key) + "` | " + std::string(what) + " | `" + std::string(fallback) + "` | ";
  return row + std::string(doc) + " |\n";
}

}  // namespace

std::vector<ExplainedValue> explain(const Config& config) {
  std::vector<ExplainedValue> values;
  config::for_each_section(config, [&](const std::string& name, const auto& fields, const auto& section) {
    for (const auto& field : fields) {
      const std::string full = config::full_key(name, field.key);
      values.push_back(explain_field(full, field, section, config.origins.at(full)));
    }
  });
  return values;
}

std::string to_json(const Config& config) {
  nlohmann::ordered_json j;
  j["values"] = nlohmann::ordered_json::array();
  for (const auto& v : explain(config)) j["values"].push_back(json_of(v));
  j["datasets"] = nlohmann::ordered_json::array();
  for (const auto& rule : config.datasets) {
    nlohmann::ordered_json r;
    r["match"] = rule.match;
    r["origin"] = rule.origin;
    r["values"] = nlohmann::ordered_json::array();
    for (const auto& v : explain_rule(rule)) r["values"].push_back(json_of(v));
    r["processed"] = nlohmann::ordered_json::array();
    for (const auto& o : rule.values.processed)
      r["processed"].push_back({{"number", o.number},
                                {"path", o.path},
                                {"text", o.text},
                                {"split", YAML::Load(o.text)["split"].IsDefined()},
                                {"origin", o.origin}});
    r["outputs"] = nlohmann::ordered_json::array();
    for (const auto& o : rule.values.outputs) r["outputs"].push_back(o.path);
    j["datasets"].push_back(std::move(r));
  }
  j["couple"] = nlohmann::ordered_json::array();
  for (const auto& rule : config.couple)
    j["couple"].push_back({{"match", rule.match},
                           {"from", rule.from},
                           {"to", rule.to},
                           {"mode", name_of(rule.mode)},
                           {"when", name_of(rule.when)},
                           {"keep", name_of(rule.keep)},
                           {"exclude", rule.exclude},
                           {"variables", rule.variables},
                           {"origin", rule.origin}});
  j["sets"] = nlohmann::ordered_json::array();
  for (const auto& set : config.sets)
    j["sets"].push_back(
        {{"name", set.name},
         {"match", set.match},
         {"link", set.link},
         {"pointer", set.pointer.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(set.pointer)},
         {"keep", set.keep ? nlohmann::ordered_json(*set.keep) : nlohmann::ordered_json()},
         {"members", set.members},
         {"origin", set.origin}});
  const auto transfers = [](const std::vector<Transfer>& all) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& t : all) list.push_back({{"from", t.from}, {"to", t.to}});
    return list;
  };
  j["transfers"] = {{"in", transfers(config.stage.in)}, {"out", transfers(config.stage.out)}};
  const auto& on = config.outside.on;
  j["on"] = {{"commands", on.commands},
             {"at_once", on.at_once},
             {"timeout_s", static_cast<double>(on.timeout.count()) / 1000.0}};
  // A path need not be UTF-8; the dump must not fail for that.
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_yaml(const Config& config) {
  std::string out;
  config::for_each_section(config, [&](const std::string& name, const auto& fields, const auto& section) {
    const std::string indent = name.empty() ? "" : "  ";
    if (!name.empty()) out += name + ":\n";
    for (const auto& field : fields) out += indent + std::string(field.key) + ": " + field.show(section) + "\n";
  });
  if (!config.couple.empty()) out += "couple:\n";
  for (const auto& rule : config.couple)
    for (const auto& field : config::couple_fields())
      out += (field.key == "match" ? "  - " : "    ") + std::string(field.key) + ": " + field.show(rule) + "\n";
  if (!config.sets.empty()) out += "sets:\n";
  for (const auto& set : config.sets)
    for (const auto& field : config::set_fields())
      out += (field.key == "name" ? "  - " : "    ") + std::string(field.key) + ": " + field.show(set) + "\n";
  if (config.datasets.empty()) return out;
  out += "datasets:\n";
  for (const auto& rule : config.datasets) {
    out += "  - match: " + config::yaml_scalar(rule.match) + "\n";
    for (const auto& v : explain_rule(rule)) out += "    " + v.key + ": " + v.value + "\n";
  }
  return out;
}

std::string example_yaml() {
  const Config config = default_config();
  std::string out =
      "# advectio.yaml: every key with its default. All of them may be left out.\n"
      "# Sizes: 4GiB, 512MiB, 1.5GB. Durations: 500ms, 30s, 10min, 2h.\n";
  config::for_each_section(config, [&](const std::string& name, const auto& fields, const auto& section) {
    const std::string indent = name.empty() ? "" : "  ";
    out += "\n# " + std::string(doc_of(name)) + "\n" + (name.empty() ? "" : name + ":\n");
    for (const auto& field : fields)
      out += indent + "# " + std::string(field.doc) + "\n" + indent + std::string(field.key) + ": " +
             field.show(section) + (field.example.empty() ? "" : "  # e.g. " + std::string(field.example)) + "\n";
  });
  out +=
      "\n# Rules, applied in order; a later one overrides key by key. This one says nothing but the defaults.\n"
      "datasets:\n  # " +
      std::string(config::kMatchDoc) + "\n  - match: \"*\"\n";
  const DatasetPolicy defaults;
  for (const auto& field : config::dataset_fields()) {
    out += "    # " + std::string(field.doc) + "\n    # (" + std::string(field.type) + ")\n";
    out += "    " + std::string(field.key) + ": " + field.show(defaults);
    if (!field.example.empty()) out += "  # e.g. " + std::string(field.example);
    out += "\n";
  }
  return out;
}

std::string reference_markdown() {
  const Config config = default_config();
  std::string out;
  config::for_each_section(config, [&](const std::string& name, const auto& fields, const auto& section) {
    out += (name.empty() ? "### At the top" : "### `" + name + "`") + "\n\n" + std::string(doc_of(name)) +
           "\n\n| key | what | default | |\n|---|---|---|---|\n";
    for (const auto& f : fields) out += table_row(f.key, f.type, f.show(section), f.doc);
    out += "\n";
  });
  out += "### `datasets`\n\nA list of rules.\n\n| key | what | default | |\n|---|---|---|---|\n";
  out += table_row("match", config::kMatchType, "(must be there)", config::kMatchDoc);
  const DatasetPolicy defaults;
  for (const auto& f : config::dataset_fields()) out += table_row(f.key, f.type, f.show(defaults), f.doc);
  out +=
      "\n### `couple`\n\nA list of rules; the first that matches a file holds.\n\n| key | what | default | "
      "|\n|---|---|---|---|\n";
  const CoupleRule rule;
  for (const auto& f : config::couple_fields()) {
    const bool is_needed = f.key == "match" || f.key == "from" || f.key == "to";
    out += table_row(f.key, f.type, is_needed ? "(must be there)" : f.show(rule), f.doc);
  }
  out +=
      "\n### `sets`\n\nA list of sets of files that are complete together; see operations.md.\n\n| key | what | "
      "default | |\n|---|---|---|---|\n";
  const SetRule set;
  for (const auto& f : config::set_fields()) {
    const bool is_needed = f.key == "name" || f.key == "match" || f.key == "link";
    out += table_row(f.key, f.type, is_needed ? "(must be there)" : f.show(set), f.doc);
  }
  return out;
}

}  // namespace advectio
