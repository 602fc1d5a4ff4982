// A line from the control socket.
#include <string>

#include "fuzz/fuzz.h"
#include "server/control_socket.h"

using namespace advectio;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto request = parse_request({reinterpret_cast<const char*>(data), size}, "s");
  if (!request) fuzz::hold(request.error().message.find('\n') == std::string::npos, "an answer is one line");
  return 0;
}
