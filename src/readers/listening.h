// Where a server listens for those on other nodes.
#pragma once

#include <sys/socket.h>

#include <string>

#include "core/result.h"
#include "readers/message.h"

namespace advectio::readers {

struct Listening {
  Descriptor socket;
  std::string address;  ///< as it is, "tcp:10.0.0.7:40123"
};
/// `text`: "tcp:HOST:PORT", or "tcp:NETWORK/BITS:PORT"; port 0: any.
/// Errors: Code::invalid for an address that is none; others of the system.
Result<Listening> listen_at(const std::string& text);

std::string host_name();
/// Constant in time: how much of a secret is right is nobody's business.
bool same_secret(const std::string& a, const std::string& b);
/// "tcp:HOST:PORT".
std::string address_of(const sockaddr_storage& a, socklen_t size);

}  // namespace advectio::readers
