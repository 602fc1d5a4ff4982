// The text of an advectio.yaml, and of the rules of advectio process.
#include <string_view>

#include "config/config.h"
#include "config/processing.h"
#include "fuzz/fuzz.h"

using namespace advectio;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto rules = parse_process_rules(text, "rules.yaml"); !rules)
    fuzz::hold(rules.error().message.find('\n') == std::string::npos, "what is wrong is one line");
  const auto config = parse_config(text, "fuzz.yaml");
  if (!config) {
    fuzz::hold(config.error().message.find('\n') == std::string::npos, "what is wrong is one line");
    return 0;
  }
  const auto yaml = to_yaml(*config);
  const auto second = parse_config(yaml, "again.yaml");
  fuzz::hold(second.ok(), "a config that is written out is one");
  fuzz::hold(to_yaml(*second) == yaml, "and the same one");
  (void)to_json(*config);
  (void)explain(*config);
  (void)resolve(*config, "/out/wrfout_d01_2005-08-28_12:00:00");
  (void)stage_bytes_max(*config, 8ULL << 30, 4ULL << 30);
  return 0;
}
