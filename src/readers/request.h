// What a reader may ask. The parser takes any bytes; PROTOCOL.md says what is right.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/field.h"
#include "core/result.h"

namespace advectio::readers {

inline constexpr int protocol_version = 1;

enum class Policy : std::uint8_t { wait, drop_oldest, latest };

struct Request {
  enum class Kind : std::uint8_t { hello, list, subscribe, unsubscribe, next, schema, read, map, done, status };
  Kind kind = Kind::hello;
  std::uint64_t id = 0;
  // hello
  std::string secret, name;
  std::string ucx;  ///< address of the reader's UCX worker; empty: it has none
  // list, subscribe
  std::vector<std::string> match;
  // subscribe
  Policy policy = Policy::wait;
  std::uint64_t depth = 2;             ///< frames that drop-oldest keeps
  std::uint64_t history = 0;           ///< of the frames that are there already so many
  std::optional<std::uint64_t> after;  ///< all behind that one, in place of `history`
  std::string group;                   ///< readers that share the frames; empty: none
  std::string reader;                  ///< all connections of one reader say the same; empty: this is the only one
  std::uint64_t servers = 1;           ///< to which that reader connects
  // next, unsubscribe
  std::uint64_t subscription = 0;
  std::uint64_t wait_ms = 0;
  // schema
  std::uint64_t schema = 0;
  // read, map, done
  std::uint64_t frame = 0;
  std::uint32_t variable = 0;
  Part part;
  bool by_ucx = false;
  std::vector<std::uint32_t> variables;
  std::uint64_t from = 0;  ///< blocks of an earlier answer to `map`
};

/// Errors: Code::invalid, with a text for whoever has asked.
Result<Request> parse_request(const nlohmann::json& object);

}  // namespace advectio::readers
