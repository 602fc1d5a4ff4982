#include "core/result.h"

#include <cerrno>
#include <cstring>

namespace advectio {

std::string_view name_of(Code code) noexcept {
  switch (code) {
    case Code::invalid: return "invalid";
    case Code::config: return "config";
    case Code::not_found: return "not_found";
    case Code::exists: return "exists";
    case Code::permission: return "permission";
    case Code::full: return "full";
    case Code::io: return "io";
    case Code::timeout: return "timeout";
    case Code::gone: return "gone";
    case Code::corrupt: return "corrupt";
    case Code::unsupported: return "unsupported";
    case Code::bug: return "bug";
  }
  return "bug";
}

namespace {

Code code_of_errno(int sys) noexcept {
  switch (sys) {
    case ENOENT: return Code::not_found;
    case EEXIST: return Code::exists;
    case EACCES:
    case EPERM:
    case EROFS: return Code::permission;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM: return Code::full;
    case ETIMEDOUT: return Code::timeout;
    default: return Code::io;
  }
}

}  // namespace

Error system_error(std::string_view what, int sys) {
  return Error{code_of_errno(sys), std::string(what) + ": " + std::strerror(sys), sys};
}

}  // namespace advectio
