#include "readers/client.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace advectio::readers {

using nlohmann::json;

namespace {

constexpr std::uint64_t data_max = 1ULL << 32;  ///< of an answer that has no destination

Error error_of(const json& reply) {
  static constexpr Code codes[] = {Code::invalid, Code::not_found, Code::permission, Code::gone, Code::unsupported};
  Error out{Code::io, reply["error"].is_string() ? reply["error"].get<std::string>() : "the server refuses", EIO};
  const auto code = reply.contains("code") && reply["code"].is_string() ? reply["code"].get<std::string>() : "";
  for (const auto c : codes)
    if (code == name_of(c)) out.code = c;
  return out;
}

Error nonsense(const char* what) {
  return Error{Code::corrupt, std::string("the server's answer makes no sense: ") + what, 0};
}

bool take(const json& object, const char* key, std::uint64_t& out) {
  if (!object.contains(key) || !object[key].is_number_unsigned()) return false;
  out = object[key].get<std::uint64_t>();
  return true;
}

bool take(const json& object, const char* key, std::vector<std::uint64_t>& out) {
  if (!object.contains(key) || !object[key].is_array()) return false;
  for (const auto& x : object[key]) {
    if (!x.is_number_unsigned()) return false;
    out.push_back(x.get<std::uint64_t>());
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(const Address& address, const std::string& secret,
                                                const std::string& name, std::chrono::milliseconds timeout,
                                                bool by_ucx) {
  std::unique_ptr<Client> client(new Client);
  json hello = {{"do", "hello"}, {"protocol", 1}, {"secret", secret}, {"name", name}};
  if (by_ucx) {
    auto ucx = Ucx::open();
    if (!ucx) return std::move(ucx).error();
    client->ucx_ = std::move(ucx).value();
    hello["ucx"] = client->ucx_->address();
  }
  auto socket = connect_to(address, timeout);
  if (!socket) return std::move(socket).error();
  client->socket_ = std::move(socket).value();
  client->thread_ = std::thread([raw = client.get()] { raw->receive(); });
  auto answer = client->request(std::move(hello), {}, timeout);
  if (!answer) return std::move(answer).error();
  client->server_ = std::move(answer->object);
  client->maps_ = client->server_.value("maps", false);
  if (by_ucx && !client->server_.value("ucx", false))
    return Error{Code::unsupported, "the server: " + client->server_.value("ucx_error", "it knows no UCX"), 0};
  return client;
}

Client::~Client() {
  (void)::shutdown(socket_.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

void Client::receive() {
  Error why{Code::gone, "the server has gone", EPIPE};
  for (;;) {
    auto head = receive_head(socket_.get(), reply_head_max);
    if (!head) {
      why = std::move(head).error();
      break;
    }
    if (!*head) break;
    Reply reply{std::move((*head)->object), {}, std::move((*head)->descriptors)};
    const auto bytes = (*head)->data_bytes;
    std::uint64_t id = 0;
    if (!take(reply.object, "id", id)) {
      why = nonsense("it has no id");
      break;
    }
    if (id == 0) {
      const std::lock_guard guard(mutex_);
      end_ = std::move(reply.object);
      ended_.notify_all();
      continue;
    }
    Pending pending;
    {
      const std::lock_guard guard(mutex_);
      const auto it = pending_.find(id);
      if (it == pending_.end()) {
        why = nonsense("nobody has asked for it");
        break;
      }
      pending = std::move(it->second);
      pending_.erase(it);
    }
    note_frame(reply.object);
    Result<void> got;
    if (!pending.destination.empty() && bytes == pending.destination.size()) {
      got = receive_bytes(socket_.get(), pending.destination);
    } else if (bytes <= data_max) {
      reply.data.resize(bytes);
      got = receive_bytes(socket_.get(), reply.data);
    } else {
      got = nonsense("it is too long");
    }
    if (!got) {
      pending.promise.set_value(got.error());
      why = std::move(got).error();
      break;
    }
    if (reply.object.contains("error"))
      pending.promise.set_value(error_of(reply.object));
    else
      pending.promise.set_value(std::move(reply));
  }
  std::map<std::uint64_t, Pending> left;
  {
    const std::lock_guard guard(mutex_);
    broken_ = why;
    left.swap(pending_);
    ended_.notify_all();
  }
  for (auto& [id, p] : left) p.promise.set_value(why);
}

Result<Client::Reply> Client::request(json object, std::span<std::byte> destination,
                                      std::optional<std::chrono::milliseconds> timeout) {
  std::future<Result<Reply>> answer;
  {
    const std::lock_guard guard(mutex_);
    if (broken_) return *broken_;
    const auto id = next_id_++;
    object["id"] = id;
    auto& p = pending_[id];
    p.destination = destination;
    answer = p.promise.get_future();
  }
  {
    const std::lock_guard guard(sending_);
    if (auto sent = send_head(socket_.get(), object); !sent) (void)::shutdown(socket_.get(), SHUT_RDWR);
  }
  if (timeout && answer.wait_for(*timeout) == std::future_status::timeout) {
    (void)::shutdown(socket_.get(), SHUT_RDWR);
    return Error{Code::timeout, "the server does not answer; is it stopped?", ETIMEDOUT};
  }
  return answer.get();
}

Result<json> Client::ask(json object) {
  auto reply = request(std::move(object));
  if (!reply) return std::move(reply).error();
  return std::move(reply->object);
}

/// Frames are known from the answers to `next`.
void Client::note_frame(const json& reply) {
  if (!reply.contains("frame") || !reply["frame"].is_object()) return;
  std::uint64_t order = 0, schema = 0;
  if (!take(reply["frame"], "frame", order) || !take(reply["frame"], "schema", schema)) return;
  const std::lock_guard guard(mutex_);
  schema_of_frame_[order] = schema;
}

void Client::done(std::uint64_t frame) {
  const std::lock_guard guard(mapping_);
  {
    const std::lock_guard its(mutex_);
    schema_of_frame_.erase(frame);
  }
  const auto it = frames_.find(frame);
  if (it != frames_.end()) {
    const auto used = std::move(it->second.segments);
    frames_.erase(it);
    // The server counts in the same way which segments this reader knows.
    for (const auto s : used)
      if (std::none_of(frames_.begin(), frames_.end(), [s](const auto& f) { return f.second.segments.contains(s); }))
        segments_.erase(s);
  }
  (void)request({{"do", "done"}, {"frame", frame}});
}

Result<ReadVariable> Client::variable_of(std::uint64_t frame, std::uint32_t variable) {
  std::uint64_t id = 0;
  {
    const std::lock_guard guard(mutex_);
    const auto it = schema_of_frame_.find(frame);
    if (it == schema_of_frame_.end())
      return Error{Code::not_found, "frame " + std::to_string(frame) + " is not in memory, or was let go", 0};
    id = it->second;
    if (const auto known = schemas_.find(id); known != schemas_.end()) {
      if (variable >= known->second.size())
        return Error{Code::not_found, "there is no variable " + std::to_string(variable), 0};
      return known->second[variable];
    }
  }
  auto reply = ask({{"do", "schema"}, {"schema", id}});
  if (!reply) return std::move(reply).error();
  auto variables = variables_of(reply->contains("schema") ? (*reply)["schema"] : json());
  if (!variables) return std::move(variables).error();
  if (variable >= variables->size())
    return Error{Code::not_found, "there is no variable " + std::to_string(variable), 0};
  const std::lock_guard guard(mutex_);
  return (schemas_[id] = std::move(variables).value())[variable];
}

/// The field where its memory can be mapped; null where not.
Result<std::shared_ptr<const AssembledField>> Client::mapped(std::uint64_t frame, std::uint32_t variable) {
  if (!maps_) return std::shared_ptr<const AssembledField>();
  auto v = variable_of(frame, variable);
  if (!v) return std::move(v).error();
  if (v->type == DataType::string) return std::shared_ptr<const AssembledField>();
  const std::lock_guard guard(mapping_);
  const auto f = frames_.try_emplace(frame).first;
  if (const auto it = f->second.fields.find(variable); it != f->second.fields.end()) return it->second;
  auto field = std::make_shared<AssembledField>(variable, v->type, v->rank);
  bool whole = true;
  for (std::uint64_t from = 0;;) {
    auto reply = request({{"do", "map"}, {"frame", frame}, {"variables", {variable}}, {"from", from}});
    if (!reply) return std::move(reply).error();
    const auto& o = reply->object;
    if (!o.contains("segments") || !o.contains("blocks") || !o["segments"].is_array() || !o["blocks"].is_array() ||
        o["segments"].size() != reply->descriptors.size())
      return nonsense("blocks without memory");
    for (std::size_t i = 0; i < reply->descriptors.size(); ++i) {
      std::uint64_t id = 0, bytes = 0;
      if (!take(o["segments"][i], "segment", id) || !take(o["segments"][i], "bytes", bytes) || bytes == 0)
        return nonsense("a segment");
      auto* at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, reply->descriptors[i].get(), 0);
      if (at == MAP_FAILED) return system_error("map a segment of the stage", errno);
      segments_[id] = std::make_shared<const Mapping>(static_cast<std::byte*>(at), bytes);
    }
    for (const auto& b : o["blocks"]) {
      Block block;
      std::uint64_t id = 0, offset = 0;
      if (!take(b, "start", block.box.start) || !take(b, "count", block.box.count) || !take(b, "segment", id) ||
          !take(b, "offset", offset) || block.box.start.size() != v->rank || block.box.count.size() != v->rank)
        return nonsense("a block");
      (void)take(b, "stride", block.stride);
      const auto segment = segments_.find(id);
      block.bytes = block.box.volume() * size_of(v->type);
      if (segment == segments_.end() || offset > segment->second->bytes() ||
          block.bytes > segment->second->bytes() - offset || (!block.stride.empty() && block.stride.size() != v->rank))
        return nonsense("a block that is in no segment");
      block.variable = variable;
      block.data = segment->second->data() + offset;
      block.lease = segment->second;
      f->second.segments.insert(id);
      ADVECTIO_TRY(field->add(block));
    }
    from += o["blocks"].size();
    whole = whole && o.contains("unmapped") && o["unmapped"].is_array() && o["unmapped"].empty();
    if (!o.value("rest", false)) break;
  }
  return f->second.fields[variable] = whole ? std::shared_ptr<const AssembledField>(std::move(field)) : nullptr;
}

Result<void> Client::read(std::uint64_t frame, std::uint32_t variable, const Part& part,
                          std::span<std::byte> destination) {
  auto v = variable_of(frame, variable);
  if (!v) return std::move(v).error();
  const auto element = size_of(v->type);
  if (element == 0) return Error{Code::invalid, v->name + " holds strings", 0};
  if (part.box.start.size() != v->rank || part.box.count.size() != v->rank ||
      part.box.volume() * element != destination.size())
    return Error{Code::invalid, v->name + ": the memory does not fit what is asked for", 0};
  if (destination.empty()) return {};
  auto field = mapped(frame, variable);
  if (!field) return std::move(field).error();
  if (*field) {
    if (!part.dense() || !(*field)->covers(part.box))
      for (std::size_t i = 0; i < destination.size(); i += element)
        std::memcpy(destination.data() + i, v->fill.data(), element);
    (*field)->read(part, destination.data());
    return {};
  }
  json object = {
      {"do", "read"}, {"frame", frame}, {"variable", variable}, {"start", part.box.start}, {"count", part.box.count}};
  if (!part.stride.empty()) object["stride"] = part.stride;
  if (!ucx_) {
    auto reply = request(std::move(object), destination);
    if (!reply) return std::move(reply).error();
    return reply->data.empty() ? Result<void>{} : nonsense("values that do not fit");
  }
  object["by_ucx"] = true;
  const std::lock_guard guard(receiving_by_ucx_);
  auto reply = request(std::move(object));
  if (!reply) return std::move(reply).error();
  std::uint64_t id = 0;
  if (!take(reply->object, "id", id) || !reply->object.value("ucx", false)) return nonsense("values without UCX");
  return ucx_->receive(id, destination, [this] { return gone(); });
}

Result<Bytes> Client::read_strings(std::uint64_t frame, std::uint32_t variable, const Part& part) {
  json object = {
      {"do", "read"}, {"frame", frame}, {"variable", variable}, {"start", part.box.start}, {"count", part.box.count}};
  if (!part.stride.empty()) object["stride"] = part.stride;
  auto reply = request(std::move(object));
  if (!reply) return std::move(reply).error();
  return std::move(reply->data);
}

Result<std::pair<std::span<const std::byte>, Lease>> Client::view(std::uint64_t frame, std::uint32_t variable,
                                                                  const Part& part) {
  using Out = std::pair<std::span<const std::byte>, Lease>;
  auto field = mapped(frame, variable);
  if (!field) return std::move(field).error();
  if (!*field || part.box.empty()) return Out();
  const auto bytes = (*field)->view(part);
  return bytes.empty() ? Out() : Out(bytes, *field);
}

json Client::end(bool wait) {
  std::unique_lock guard(mutex_);
  if (wait) ended_.wait(guard, [this] { return !end_.is_null() || broken_; });
  return end_;
}

bool Client::gone() {
  const std::lock_guard guard(mutex_);
  return broken_.has_value();
}

}  // namespace advectio::readers
