#include "server/run.h"

#include <filesystem>
#include <utility>

#include "server/coupled.h"
#include "server/events.h"
#include "server/live.h"
#include "server/sprint.h"

namespace advectio {

Run::Run(Files& its_files, ServerOptions its_options, Config its_config, SinkFactory its_sinks, Log& its_log,
         Stage its_stage)
    : files(its_files),
      options(std::move(its_options)),
      config(std::move(its_config)),
      sinks(std::move(its_sinks)),
      log(its_log),
      stage(std::move(its_stage)),
      coupled(std::make_unique<CoupledOutputs>(options.workflow, config, log)),
      events(std::make_unique<Events>(*this)),
      rate(config.server.drain_max) {
  std::error_code ignored;
  directory = std::filesystem::current_path(ignored).string();
}

Run::~Run() = default;

void Run::report(const std::string& text) {
  log.error(text);
  errors.push_back(text);
}

void Run::forward(bool rang) {
  stage.control().activity.fetch_add(1, std::memory_order_relaxed);
  if (rang) journal::ring(stage.control().progress);
}

}  // namespace advectio
