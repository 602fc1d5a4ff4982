#include "readers/ucx.h"

#include "readers/base64.h"

#ifndef ADVECTIO_HAS_UCX

namespace advectio::readers {
Result<std::unique_ptr<Ucx>> Ucx::open() {
  return Error{Code::unsupported, "this build has no UCX", 0};
}
}  // namespace advectio::readers

#else

#include <dlfcn.h>
#include <poll.h>
#include <ucp/api/ucp.h>

#include <cstdlib>
#include <mutex>

namespace advectio::readers {

namespace {

/// Functions of libucp and libucs that are called here.
struct Library {
  decltype(&::ucp_init_version) init = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close = nullptr;
  decltype(&::ucp_tag_send_nbx) tag_send = nullptr;
  decltype(&::ucp_tag_probe_nb) tag_probe = nullptr;
  decltype(&::ucp_tag_msg_recv_nbx) tag_receive = nullptr;
  decltype(&::ucp_request_check_status) request_status = nullptr;
  decltype(&::ucp_request_cancel) request_cancel = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;
  std::string missing;
};

const Library& library() {
  static const Library loaded = [] {
    Library l;
    // Its handlers of signals belong to a program that wants them.
    (void)::setenv("UCX_HANDLE_ERRORS", "none", 0);
    (void)::setenv("UCX_LOG_LEVEL", "fatal", 0);
    void* ucp = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    void* ucs = ::dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
    if (ucp == nullptr || ucs == nullptr) {
      l.missing = "libucp.so.0 is not there (Debian: libucx0)";
      return l;
    }
    const auto find = [&](auto& function, void* from, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(from, name));
      if (function == nullptr && l.missing.empty()) l.missing = std::string("UCX has no function ") + name;
    };
    find(l.init, ucp, "ucp_init_version");
    find(l.config_read, ucp, "ucp_config_read");
    find(l.config_release, ucp, "ucp_config_release");
    find(l.cleanup, ucp, "ucp_cleanup");
    find(l.worker_create, ucp, "ucp_worker_create");
    find(l.worker_destroy, ucp, "ucp_worker_destroy");
    find(l.worker_get_address, ucp, "ucp_worker_get_address");
    find(l.worker_release_address, ucp, "ucp_worker_release_address");
    find(l.worker_get_efd, ucp, "ucp_worker_get_efd");
    find(l.worker_arm, ucp, "ucp_worker_arm");
    find(l.worker_progress, ucp, "ucp_worker_progress");
    find(l.ep_create, ucp, "ucp_ep_create");
    find(l.ep_close, ucp, "ucp_ep_close_nbx");
    find(l.tag_send, ucp, "ucp_tag_send_nbx");
    find(l.tag_probe, ucp, "ucp_tag_probe_nb");
    find(l.tag_receive, ucp, "ucp_tag_msg_recv_nbx");
    find(l.request_status, ucp, "ucp_request_check_status");
    find(l.request_cancel, ucp, "ucp_request_cancel");
    find(l.request_free, ucp, "ucp_request_free");
    find(l.status_string, ucs, "ucs_status_string");
    return l;
  }();
  return loaded;
}

constexpr int look_ms = 20;  ///< between two looks whether to give up

class UcxEnd final : public Ucx {
 public:
  UcxEnd() = default;
  UcxEnd(const UcxEnd&) = delete;
  UcxEnd& operator=(const UcxEnd&) = delete;
  ~UcxEnd() override {
    if (peer_ != nullptr) {
      // At once: the other end may be dead.
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      how.flags = UCP_EP_CLOSE_FLAG_FORCE;
      auto* request = u_.ep_close(peer_, &how);
      if (UCS_PTR_IS_PTR(request)) {
        for (int i = 0; i < 1000 && u_.request_status(request) == UCS_INPROGRESS; ++i) u_.worker_progress(worker_);
        u_.request_free(request);
      }
    }
    if (worker_ != nullptr) u_.worker_destroy(worker_);
    if (context_ != nullptr) u_.cleanup(context_);
  }

  Result<void> begin() {
    ucp_config_t* config = nullptr;
    ADVECTIO_TRY(check(u_.config_read(nullptr, nullptr, &config), "config"));
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    const auto status = u_.init(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    u_.config_release(config);
    ADVECTIO_TRY(check(status, "begin"));
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ADVECTIO_TRY(check(u_.worker_create(context_, &worker, &worker_), "make a worker"));
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    ADVECTIO_TRY(check(u_.worker_get_address(worker_, &address, &bytes), "worker address"));
    address_ = to_base64({reinterpret_cast<const std::byte*>(address), bytes});
    u_.worker_release_address(worker_, address);
    return check(u_.worker_get_efd(worker_, &wake_), "wake-up");
  }

  [[nodiscard]] const std::string& address() const override { return address_; }

  Result<void> connect(const std::string& address) override {
    auto bytes = from_base64(address);
    if (!bytes || bytes->empty()) return Error{Code::invalid, "this is no address of UCX", 0};
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(bytes->data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    return check(u_.ep_create(worker_, &params, &peer_), "connect");
  }

  Result<void> send(std::uint64_t tag, std::span<const std::byte> bytes, const GiveUp& give_up) override {
    ucp_request_param_t how{};
    return finish(u_.tag_send(peer_, bytes.data(), bytes.size(), tag, &how), "send", give_up);
  }

  Result<void> receive(std::uint64_t tag, std::span<std::byte> bytes, const GiveUp& give_up) override {
    while (!bytes.empty()) {
      ucp_tag_recv_info_t info{};
      auto* message = u_.tag_probe(worker_, tag, ~std::uint64_t{0}, 1, &info);
      if (message == nullptr) {
        if (u_.worker_progress(worker_) == 0) ADVECTIO_TRY(wait(give_up));
        continue;
      }
      if (info.length > bytes.size() || info.length == 0)
        return Error{Code::corrupt, "UCX: a message of " + std::to_string(info.length) + " bytes does not fit", 0};
      ucp_request_param_t how{};
      ADVECTIO_TRY(finish(u_.tag_receive(worker_, bytes.data(), info.length, message, &how), "receive", give_up));
      bytes = bytes.subspan(info.length);
    }
    return {};
  }

 private:
  [[nodiscard]] Result<void> check(ucs_status_t status, const char* what) const {
    if (status == UCS_OK) return {};
    return Error{Code::io, std::string("UCX: ") + what + ": " + u_.status_string(status), 0};
  }

  Result<void> finish(ucs_status_ptr_t request, const char* what, const GiveUp& give_up) {
    if (request == nullptr) return {};
    if (UCS_PTR_IS_ERR(request)) return check(UCS_PTR_STATUS(request), what);
    Result<void> waited;
    while (waited && u_.request_status(request) == UCS_INPROGRESS)
      if (u_.worker_progress(worker_) == 0) waited = wait(give_up);
    const auto status = u_.request_status(request);
    if (status == UCS_INPROGRESS) {
      // Its memory is used until UCX says otherwise.
      u_.request_cancel(worker_, request);
      if (peer_ != nullptr) {
        ucp_request_param_t how{};
        how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        how.flags = UCP_EP_CLOSE_FLAG_FORCE;
        auto* closing = u_.ep_close(peer_, &how);
        peer_ = nullptr;
        for (int i = 0; i < 100000 && (u_.request_status(request) == UCS_INPROGRESS ||
                                       (UCS_PTR_IS_PTR(closing) && u_.request_status(closing) == UCS_INPROGRESS));
             ++i)
          u_.worker_progress(worker_);
        if (UCS_PTR_IS_PTR(closing)) u_.request_free(closing);
      }
    }
    u_.request_free(request);
    if (!waited) return waited;
    return check(status, what);
  }

  /// Until something moves.
  Result<void> wait(const GiveUp& give_up) {
    if (u_.worker_arm(worker_) == UCS_OK) {
      pollfd p{wake_, POLLIN, 0};
      if (::poll(&p, 1, look_ms) > 0) return {};
    }
    if (give_up()) return Error{Code::gone, "the other end has gone", EPIPE};
    return {};
  }

  const Library& u_ = library();
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h peer_ = nullptr;
  int wake_ = -1;
  std::string address_;
};

}  // namespace

Result<std::unique_ptr<Ucx>> Ucx::open() {
  if (!library().missing.empty()) return Error{Code::unsupported, library().missing, 0};
  auto end = std::make_unique<UcxEnd>();
  ADVECTIO_TRY(end->begin());
  return std::unique_ptr<Ucx>(std::move(end));
}

}  // namespace advectio::readers

#endif
