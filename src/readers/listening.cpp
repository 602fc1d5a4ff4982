#include "readers/listening.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace advectio::readers {

std::string host_name() {
  char name[256] = {};
  (void)::gethostname(name, sizeof name - 1);
  return name;
}

bool same_secret(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return different == 0 && !a.empty();
}

std::string address_of(const sockaddr_storage& a, socklen_t size) {
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&a), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "?";
  return "tcp:" + (a.ss_family == AF_INET6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

namespace {

bool is_within(const std::byte* address, const std::byte* network, unsigned bits) {
  for (unsigned i = 0; i < bits; ++i)
    if (((address[i / 8] ^ network[i / 8]) & std::byte(0x80 >> (i % 8))) != std::byte{0}) return false;
  return true;
}

/// This node's address in a network, written "10.1.0.0/16". The same text serves all nodes of a run.
Result<std::string> address_in(const std::string& network) {
  const auto slash = network.find('/');
  const auto base = network.substr(0, slash), length = network.substr(slash + 1);
  std::byte wanted[sizeof(in6_addr)] = {};
  const int family = base.find(':') == std::string::npos ? AF_INET : AF_INET6;
  const unsigned bits_max = family == AF_INET ? 32 : 128;
  const bool is_number = !length.empty() && length.size() <= 3 &&
                         std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; });
  const auto bits = is_number ? static_cast<unsigned>(std::stoul(length)) : bits_max + 1;
  if (::inet_pton(family, base.c_str(), wanted) != 1 || bits > bits_max)
    return Error{Code::invalid, "'" + network + "' is no network; write e.g. 10.1.0.0/16", 0};
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return system_error("getifaddrs", errno);
  std::string found;
  for (const auto* i = all; i != nullptr && found.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
    const void* const its = family == AF_INET
                                ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr)
                                : &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
    char text[INET6_ADDRSTRLEN] = {};
    if (is_within(static_cast<const std::byte*>(its), wanted, bits) &&
        ::inet_ntop(family, its, text, sizeof text) != nullptr)
      found = text;
  }
  ::freeifaddrs(all);
  if (found.empty()) return Error{Code::not_found, "node " + host_name() + " has no address in " + network, 0};
  return found;
}

}  // namespace

Result<Listening> listen_at(const std::string& text) {
  auto address = parse_address(text);
  if (!address) return std::move(address).error();
  if (address->local) return Error{Code::invalid, "'" + text + "': the local socket is there anyway", 0};
  if (address->host.find('/') != std::string::npos) {
    auto here = address_in(address->host);
    if (!here) return std::move(here).error().with(text);
    address->host = std::move(here).value();
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int e = ::getaddrinfo(address->host.c_str(), address->port.c_str(), &hints, &found); e != 0)
    return Error{Code::not_found, text + ": " + ::gai_strerror(e), 0};
  Result<Listening> out = Error{Code::not_found, text + ": no such address", 0};
  for (const auto* a = found; a != nullptr; a = a->ai_next) {
    Descriptor fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd) (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!fd || ::bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0 || ::listen(fd.get(), 64) != 0) {
      out = system_error("listen at " + text, errno);
      continue;
    }
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    (void)::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    out = Listening{std::move(fd), address_of(bound, size)};
    break;
  }
  ::freeaddrinfo(found);
  return out;
}

}  // namespace advectio::readers
