// A message of a reader: its prefix, its request. And a schema as the client takes it.
#include "fuzz/fuzz.h"
#include "readers/base64.h"
#include "readers/message.h"
#include "readers/request.h"
#include "readers/schema_json.h"

using namespace advectio;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = fuzz::bytes_of(data, size);
  if (size >= readers::prefix_bytes)
    if (const auto p = readers::decode_prefix(bytes.first<readers::prefix_bytes>(), readers::request_head_max))
      fuzz::hold(p->head_bytes <= readers::request_head_max, "a head has a bound");
  const auto object = nlohmann::json::parse(data, data + size, nullptr, false);
  if (object.is_discarded()) return 0;
  if (const auto request = readers::parse_request(object)) fuzz::hold(request->depth > 0, "a depth of 0 keeps nothing");
  (void)readers::variables_of(object);
  return 0;
}
