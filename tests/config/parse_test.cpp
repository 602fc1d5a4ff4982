// What a config may say, and the one line that answers what it may not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "config/config.h"

namespace advectio {
namespace {

using testing::HasSubstr;

Config parsed(const std::string& text) {
  auto config = parse_config(text, "advectio.yaml");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : default_config();
}

std::string refusal(const std::string& text) {
  auto config = parse_config(text, "advectio.yaml");
  if (config.ok()) return "(accepted)";
  EXPECT_EQ(config.error().code, Code::config);
  EXPECT_EQ(config.error().message.find('\n'), std::string::npos) << "more than one line";
  return config.error().message;
}

TEST(Config, IsAllDefaultsWhereTheTextSaysNothing) {
  for (const char* text : {"", "# nothing\n", "stage:\nserver:\nlog:\ndatasets:\n", "{}"}) {
    const Config config = parsed(text);
    EXPECT_EQ(config.stage, StageConfig{});
    EXPECT_EQ(config.server, ServerConfig{});
    EXPECT_EQ(config.log, LogConfig{});
    EXPECT_TRUE(config.datasets.empty());
    for (const auto& value : explain(config)) EXPECT_EQ(value.origin, "default") << value.key;
  }
}

TEST(Config, AddsPatternsOfMarkersToThoseOfTheDefault) {
  const auto defaults = OutsideConfig().markers;
  EXPECT_EQ(parsed("markers: none\n").outside.markers, std::vector<std::string>());
  EXPECT_EQ(parsed("markers: [none, \"*.a\"]\n").outside.markers, std::vector<std::string>{"*.a"});
  auto more = defaults;
  more.push_back("*.a");
  EXPECT_EQ(parsed("markers: [\"*.a\", \"*.done\"]\n").outside.markers, more);
  const auto config = parsed("markers: [\"*.a\"]\n");
  EXPECT_EQ(config.origins.at("markers"), "advectio.yaml:1");
  EXPECT_EQ(parsed(to_yaml(config)).outside.markers, more);
}

TEST(Config, ReadsTheFileOfEventsAndTheirCommands) {
  EXPECT_EQ(parsed("").outside.events, "");
  EXPECT_TRUE(parsed("on: none\n").outside.on.commands.empty());
  const auto config = parsed(
      "events: run.events\n"
      "on: {complete: \"rsync -a {path} 'archive: /data'\", frame: 'echo {name} {frame}', at_once: 4, timeout: 30s}\n");
  EXPECT_EQ(config.outside.events, "run.events");
  const std::map<std::string, std::string> commands = {{"complete", "rsync -a {path} 'archive: /data'"},
                                                       {"frame", "echo {name} {frame}"}};
  EXPECT_EQ(config.outside.on, (EventCommands{commands, 4, std::chrono::seconds(30)}));
  EXPECT_EQ(config.origins.at("on"), "advectio.yaml:2");
  EXPECT_EQ(parsed(to_yaml(config)).outside, config.outside);
}

TEST(Config, ReadsSets) {
  EXPECT_TRUE(parsed("sets:\n").sets.empty());
  const auto config = parsed(
      "sets:\n"
      "  - {name: restart, match: [\"rst_d01_{instant}\", \"*/sea/{instant}.nc\"], link: restart.latest, keep: 2,\n"
      "     pointer: rpointer, members: [atm, ocn]}\n"
      "  - {name: b, match: \"b{instant}\", link: b}\n");
  ASSERT_EQ(config.sets.size(), 2U);
  EXPECT_EQ(config.sets[0], (SetRule{"restart",
                                     {"rst_d01_{instant}", "*/sea/{instant}.nc"},
                                     "restart.latest",
                                     "rpointer",
                                     2,
                                     {"atm", "ocn"},
                                     "advectio.yaml:2"}));
  EXPECT_EQ(config.sets[1], (SetRule{"b", {"b{instant}"}, "b", "", std::nullopt, {}, "advectio.yaml:4"}));
  auto again = parsed(to_yaml(config)).sets;
  ASSERT_EQ(again.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    again[i].origin = config.sets[i].origin;
    EXPECT_EQ(again[i], config.sets[i]);
  }
}

TEST(Config, MakesFilesOfASetDurable) {
  const auto config = parsed(
      "datasets: [{match: \"*\", durable: false}]\n"
      "sets: [{name: r, match: [\"rst_{instant}\", \"/a/{instant}.nc\"], link: r}]\n");
  EXPECT_TRUE(resolve(config, "/x/rst_1").durable);
  EXPECT_TRUE(resolve(config, "/a/1.nc").durable);
  EXPECT_FALSE(resolve(config, "/x/1.nc").durable);
}

TEST(Config, GivesFilesOfASetAHighPriorityUnlessARuleSetsIt) {
  const auto config = parsed(
      "datasets: [{match: \"rst_2\", priority: normal}, {match: \"x*\", priority: high}]\n"
      "sets: [{name: r, match: [\"rst_{instant}\"], link: r}]\n");
  EXPECT_EQ(resolve(config, "/x/rst_1").priority, Priority::high);
  EXPECT_EQ(resolve(config, "/x/rst_2").priority, Priority::normal);
  EXPECT_EQ(resolve(config, "/x/x1").priority, Priority::high);
  EXPECT_EQ(resolve(config, "/x/1.nc").priority, Priority::normal);
}

TEST(Config, ReadsEveryKeyOfEverySection) {
  const Config config = parsed(R"(stage:
  directory: /local/scratch
  bytes_max: 4GiB
  segment_bytes: 64MiB
  warm_bytes: 1.5GiB
  wait_max: 90s
  drain: later
  in: [{from: "wrfinput*", to: /local/run}]
  out:
    - from: /local/run/rsl.*
      to: logs
    - {to: logs, from: namelist.output}
server:
  threads: 3
  sprint: false
  memory_max: 256MB
  restarts_max: 0
  drain_max: 200MiB
log:
  level: debug
  file: advectio.log
datasets:
  - match: "wrfout_*"
    capture: false
    codec: deflate
    level: 7
    deflate: libdeflate
    shuffle: bit
    chunks: {bottom_top: 1, south_north: 200}
    format: netcdf4-classic
    round: {T: 10, "*": 12}
    durable: false
    close: wait
)");
  EXPECT_EQ(config.stage.directory, "/local/scratch");
  EXPECT_EQ(config.stage.bytes_max, 4ULL << 30);
  EXPECT_EQ(config.stage.segment_bytes, 64ULL << 20);
  EXPECT_EQ(config.stage.warm_bytes, 3ULL << 29);
  EXPECT_EQ(config.stage.wait_max, std::chrono::seconds(90));
  EXPECT_TRUE(config.stage.drain_later);
  EXPECT_EQ(config.stage.in, (std::vector<Transfer>{{"wrfinput*", "/local/run"}}));
  EXPECT_EQ(config.stage.out, (std::vector<Transfer>{{"/local/run/rsl.*", "logs"}, {"namelist.output", "logs"}}));
  EXPECT_EQ(config.server.threads, 3U);
  EXPECT_FALSE(config.server.sprint);
  EXPECT_EQ(config.server.memory_max, 256'000'000U);
  EXPECT_EQ(config.server.restarts_max, 0U);
  EXPECT_EQ(config.server.drain_max, 200ULL << 20);
  EXPECT_EQ(config.log.level, LogLevel::debug);
  EXPECT_EQ(config.log.file, "advectio.log");
  ASSERT_EQ(config.datasets.size(), 1U);
  const DatasetPolicy p = resolve(config, "/run/wrfout_d01");
  DatasetPolicy wanted;
  wanted.capture = false;
  wanted.codec = Codec::deflate;
  wanted.level = 7;
  wanted.deflate = DeflateBy::libdeflate;
  wanted.shuffle = Shuffle::bit;
  wanted.chunks = {{"bottom_top", 1}, {"south_north", 200}};
  wanted.format = FileFormat::netcdf4_classic;
  wanted.round = {{"T", 10}, {"*", 12}};
  wanted.durable = false;
  wanted.close = CloseMode::wait;
  EXPECT_EQ(p, wanted);
}

TEST(Config, KnowsWhereEveryValueComesFrom) {
  const Config config = parsed("\nstage:\n  # a word\n  wait_max: 1min\ndatasets:\n  - match: a\n    codec: zstd\n");
  EXPECT_EQ(config.origins.at("stage.wait_max"), "advectio.yaml:4");
  EXPECT_EQ(config.origins.at("stage.bytes_max"), "default");
  EXPECT_EQ(config.datasets[0].origin, "advectio.yaml:6");
  EXPECT_EQ(config.datasets[0].origins.at("codec"), "advectio.yaml:7");
}

struct Wrong {
  const char* text;
  const char* line;
};

// The text has what a test's name must not have.
void PrintTo(const Wrong& wrong, std::ostream* out) {
  *out << "of " << std::string_view(wrong.text).size() << " characters";
}

class Refuses : public testing::TestWithParam<Wrong> {};

TEST_P(Refuses, WithOneLineThatSaysWhereAndWhat) {
  EXPECT_EQ(refusal(GetParam().text), GetParam().line);
}

INSTANTIATE_TEST_SUITE_P(
    UnknownKeys, Refuses,
    testing::Values(
        Wrong{"stage:\n  directory: /x\n  byte_max: 4GiB\n",
              "advectio.yaml:3: unknown key stage.byte_max; did you mean stage.bytes_max?"},
        Wrong{"stages:\n  directory: /x\n", "advectio.yaml:1: unknown key stages; did you mean stage?"},
        Wrong{"bytes_max: 4GiB\n", "advectio.yaml:1: unknown key bytes_max; did you mean stage.bytes_max?"},
        Wrong{"stage:\n  threads: 4\n", "advectio.yaml:2: unknown key stage.threads; did you mean server.threads?"},
        Wrong{"log:\n  levle: info\n", "advectio.yaml:2: unknown key log.levle; did you mean log.level?"},
        Wrong{"datasets:\n  - match: a\n    codek: zstd\n",
              "advectio.yaml:3: unknown key datasets[0].codek; did you mean datasets.codec?"},
        Wrong{"datasets:\n  - match: a\n  - match: b\n    compress: zstd\n",
              "advectio.yaml:4: unknown key datasets[1].compress; did you mean datasets.codec?"},
        Wrong{"compression: zstd\n",
              "advectio.yaml:1: unknown key compression; did you mean datasets.codec? (a key of a rule, "
              "beside match)"},
        Wrong{"netcdf_version: 4\n",
              "advectio.yaml:1: unknown key netcdf_version; known here: stage, server, readers, workflow, log, "
              "markers, events, on, datasets, couple, sets"},
        Wrong{"log:\n  rotate_daily: yes\n", "advectio.yaml:2: unknown key log.rotate_daily; known here: level, file"},
        Wrong{"stage:\n  [a, b]: 4\n", "advectio.yaml:2: a key is wanted here"}));

INSTANTIATE_TEST_SUITE_P(TwiceTheSame, Refuses,
                         testing::Values(Wrong{"stage:\n  wait_max: 1s\n  wait_max: 2s\n",
                                               "advectio.yaml:3: stage.wait_max stands there twice"},
                                         Wrong{"stage:\n  wait_max: 1s\nlog:\nstage:\n  warm_bytes: 0\n",
                                               "advectio.yaml:4: section stage stands there twice"},
                                         Wrong{"datasets:\n  - match: a\n    match: b\n",
                                               "advectio.yaml:3: datasets[0].match stands there twice"},
                                         Wrong{"datasets:\n  - match: a\n    round: {T: 3, T: 4}\n",
                                               "advectio.yaml:3: datasets[0].round: 'T' stands there twice"}));

INSTANTIATE_TEST_SUITE_P(
    UnitsAndTypes, Refuses,
    testing::Values(
        Wrong{"stage:\n  bytes_max: 4Gb\n",
              "advectio.yaml:2: stage.bytes_max: '4Gb' has the unknown unit 'Gb'; write 4GB"},
        Wrong{"stage:\n  bytes_max: 4G\n",
              "advectio.yaml:2: stage.bytes_max: '4G' has the unknown unit 'G'; write e.g. 4GiB "
              "(units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)"},
        Wrong{"server:\n  drain_max: 200Mb/s\n",
              "advectio.yaml:2: server.drain_max: '200Mb/s' has the unknown unit 'Mb/s'; write e.g. 4GiB "
              "(units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)"},
        Wrong{"server:\n  drain_max: 200MB/s\n", "advectio.yaml:2: server.drain_max: '200MB/s' is a rate; write 200MB"},
        Wrong{"server:\n  drain_max: 200MBps\n", "advectio.yaml:2: server.drain_max: '200MBps' is a rate; write 200MB"},
        Wrong{"datasets:\n  - match: &wrfout\n",
              "advectio.yaml:2: datasets[0].match: a pattern like \"wrfout_*\" is wanted; one that begins with & or * "
              "stands in quotes"},
        Wrong{"server:\n  drain_max: 200Mbit/s\n",
              "advectio.yaml:2: server.drain_max: '200Mbit/s' has the unknown unit 'Mbit/s'; write e.g. 4GiB "
              "(units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)"},
        Wrong{"stage:\n  bytes_max: 4096\n", "advectio.yaml:2: stage.bytes_max: '4096' has no unit; write e.g. 4GiB"},
        Wrong{"stage:\n  bytes_max: lots\n", "advectio.yaml:2: stage.bytes_max: 'lots' is not a size; write e.g. 4GiB"},
        Wrong{"stage:\n  bytes_max: -1GiB\n", "advectio.yaml:2: stage.bytes_max: '-1GiB' is negative"},
        Wrong{"stage:\n  bytes_max: 4000000000GiB\n", "advectio.yaml:2: stage.bytes_max: '4000000000GiB' is too large"},
        Wrong{"stage:\n  bytes_max: [4GiB]\n",
              "advectio.yaml:2: stage.bytes_max: a size like 4GiB, or auto, is wanted, this is a list"},
        Wrong{"stage:\n  bytes_max:\n",
              "advectio.yaml:2: stage.bytes_max: a size like 4GiB, or auto, is wanted, this is nothing"},
        Wrong{"stage:\n  wait_max: 10m\n",
              "advectio.yaml:2: stage.wait_max: '10m' has the unknown unit 'm'; write e.g. 30s (units: ms, s, min, h)"},
        Wrong{"stage:\n  wait_max: 10\n", "advectio.yaml:2: stage.wait_max: '10' has no unit; write e.g. 30s"},
        Wrong{"stage:\n  directory: {a: b}\n", "advectio.yaml:2: stage.directory: a path is wanted, this is a map"},
        Wrong{"stage:\n  directory: \"\"\n", "advectio.yaml:2: stage.directory: the path is empty"},
        Wrong{"stage: /dev/shm\n", "advectio.yaml:1: stage: keys are wanted below it, like stage.directory"},
        Wrong{"server:\n  threads: two\n",
              "advectio.yaml:2: server.threads: 'two' is not a whole number from 1 to 1024, or auto"},
        Wrong{"server:\n  threads: 0\n",
              "advectio.yaml:2: server.threads: '0' is not a whole number from 1 to 1024, or auto"},
        Wrong{"server:\n  threads: 1.5\n",
              "advectio.yaml:2: server.threads: '1.5' is not a whole number from 1 to 1024, or auto"},
        Wrong{"stage:\n  in: [{from: a}]\n", "advectio.yaml:2: stage.in: to is missing"},
        Wrong{"stage:\n  out:\n    - {from: a, to: b}\n    - {from: a, too: b}\n",
              "advectio.yaml:4: stage.out: 'too' is neither from nor to"},
        Wrong{"stage:\n  in: wrfinput\n",
              "advectio.yaml:2: stage.in: a list like [{from: \"wrfinput*\", to: /local/run}], or none, is wanted, "
              "this is "
              "'wrfinput'"},
        Wrong{"server:\n  drain_max: 1KiB\n",
              "advectio.yaml:2: server.drain_max: 1KiB is too small; the least is 64KiB"},
        Wrong{"server:\n  restarts_max: -1\n",
              "advectio.yaml:2: server.restarts_max: '-1' is not a whole number from 0 to 1000"},
        Wrong{"log:\n  level: loud\n", "advectio.yaml:2: log.level: 'loud' is none of: error, warning, info, debug"},
        Wrong{"datasets:\n  - match: a\n    capture: yes\n",
              "advectio.yaml:3: datasets[0].capture: true or false is wanted, this is 'yes'"},
        Wrong{"datasets:\n  - match: a\n    chunks: 4\n",
              "advectio.yaml:3: datasets[0].chunks: a map like {bottom_top: 1}, or asked, is wanted, this is '4'"},
        Wrong{"datasets:\n  - match: a\n    chunks: {lev: 0}\n",
              "advectio.yaml:3: datasets[0].chunks: 'lev': '0' is not a whole number of at least 1"},
        Wrong{"datasets:\n  - match: a\n    round:\n      T: 10\n      U: 60\n",
              "advectio.yaml:5: datasets[0].round: 'U': '60' is not a whole number from 1 to 52"},
        Wrong{"datasets: {match: a}\n",
              "advectio.yaml:1: datasets: a list of rules is wanted, each beginning with - match: PATTERN"},
        Wrong{"datasets:\n  - wrfout\n",
              "advectio.yaml:2: datasets[0]: a rule is wanted, beginning with match: PATTERN"},
        Wrong{
            "datasets:\n  - match: \"wrfout_*\n    codec: zstd\n    level: 3\"\n",
            "advectio.yaml:2: datasets[0].match: 'wrfout_* codec: zstd level: 3': there is ': ' in it; is a quote not "
            "closed?"},
        Wrong{"datasets:\n  - match: \u201cwrfout_*\u201d\n",
              "advectio.yaml:2: datasets[0].match: '\u201cwrfout_*\u201d': these are typographic quotes; write "
              "straight ones: \"wrfout_*\""},
        Wrong{"datasets:\n  - codec: zstd\n", "advectio.yaml:2: datasets[0]: match is missing"},
        Wrong{"- stage\n",
              "advectio.yaml:1: sections are wanted here: stage, server, readers, workflow, log, datasets, couple, "
              "markers, events, on, sets"},
        Wrong{"stage\n",
              "advectio.yaml:1: sections are wanted here: stage, server, readers, workflow, log, datasets, couple, "
              "markers, events, on, sets"},
        Wrong{"markers:\n",
              "advectio.yaml:1: markers: a list of patterns like [\"*.fin\"], or none, is wanted, this is nothing"},
        Wrong{"markers: [\"*.a\", \"[\"]\n", "advectio.yaml:1: markers: '[': the pattern has a '[' without its ']'"},
        Wrong{"marker: none\n", "advectio.yaml:1: unknown key marker; did you mean markers?"},
        Wrong{"set: []\n", "advectio.yaml:1: unknown key set; did you mean sets?"},
        Wrong{"sets: restart\n",
              "advectio.yaml:1: sets: a list is wanted, like - {name: restart, match: [\"rst_{instant}.nc\"], link: "
              "restart.latest}"},
        Wrong{"sets:\n  - {name: r, link: l, match: \"a{instant}\", keeps: 2}\n",
              "advectio.yaml:2: unknown key sets[0].keeps; did you mean sets.keep?"},
        Wrong{"sets:\n  - {name: r, match: \"a{instant}\"}\n", "advectio.yaml:2: sets[0]: link is missing"},
        Wrong{"sets:\n  - {name: r, link: l, match: []}\n", "advectio.yaml:2: sets[0].match: a pattern is wanted"},
        Wrong{
            "sets:\n  - {name: r, link: l, match: [\"rst_*\"]}\n",
            "advectio.yaml:2: sets[0].match: 'rst_*' must have {instant} once, in the place of the text that names the "
            "instant"},
        Wrong{
            "sets:\n  - {name: r, link: l, match: [\"{instant}/{instant}\"]}\n",
            "advectio.yaml:2: sets[0].match: '{instant}/{instant}' must have {instant} once, in the place of the text "
            "that names the instant"},
        Wrong{"sets:\n  - {name: r, link: l, match: [\"a/{instant}\"]}\n",
              "advectio.yaml:2: sets[0].match: 'a/{instant}' can match nothing: with a / in it, it is held against the "
              "absolute path; begin it with / or */"},
        Wrong{"sets:\n  - {name: r, link: l, match: [\"a{instant}[\"]}\n",
              "advectio.yaml:2: sets[0].match: 'a{instant}[': the pattern has a '[' without its ']'"},
        Wrong{"sets:\n  - {name: r, link: l, match: [\"a{instant}\", \"a{instant}\"]}\n",
              "advectio.yaml:2: sets[0].match: 'a{instant}' stands there twice"},
        Wrong{"sets:\n  - {name: r, link: l, match: \"a{instant}\", keep: 0}\n",
              "advectio.yaml:2: sets[0].keep: '0' is not a whole number from 1 to 10000, or none"},
        Wrong{"sets:\n  - {name: r, link: l, match: \"a{instant}\", members: [a b]}\n",
              "advectio.yaml:2: sets[0].members: 'a b' is no name of a program: letters, digits, _ - . are allowed"},
        Wrong{"sets:\n  - {name: r, link: l, match: \"a{instant}\", members: [a, a]}\n",
              "advectio.yaml:2: sets[0].members: 'a' stands there twice"},
        Wrong{"sets:\n  - {name: r, link: l/, match: \"a{instant}\"}\n",
              "advectio.yaml:2: sets[0]: a link and a pointer are names, without a / at the end"},
        Wrong{"sets:\n  - {name: r, link: l, pointer: l, match: \"a{instant}\"}\n",
              "advectio.yaml:2: sets[0].pointer: 'l' is the link, too"},
        Wrong{"sets:\n  - {name: r, link: l, match: \"a{instant}\"}\n  - {name: r, link: m, match: \"b{instant}\"}\n",
              "advectio.yaml:3: sets[1].name: 'r' is the name of another set"},
        Wrong{"sets:\n  - {name: r, link: l, match: \"a{instant}\"}\n  - {name: s, link: l, match: \"b{instant}\"}\n",
              "advectio.yaml:3: sets[1].link: 'l' is the link of another set"},
        Wrong{"on: rsync\n",
              "advectio.yaml:1: on: commands like {complete: \"rsync {path} archive:\"}, or none, are wanted, this is "
              "'rsync'"},
        Wrong{"on:\n  closed: a\n",
              "advectio.yaml:2: on: unknown key closed; known here: begun, frame, complete, durable, failed, at_once, "
              "timeout"},
        Wrong{"on: {complete: \"cp 'a\"}\n", "advectio.yaml:1: on: complete: the quote ' is not closed"},
        Wrong{"on: {complete: \"cp {file} b\"}\n",
              "advectio.yaml:1: on: complete: {file} is not known; known are {path}, {name} and {frame}"},
        Wrong{"on: {complete: \"cp {frame} b\"}\n",
              "advectio.yaml:1: on: complete: {frame} is known at the event frame only"},
        Wrong{"on: {complete: \" \"}\n", "advectio.yaml:1: on: complete: a command is wanted"},
        Wrong{"on: {at_once: 0}\n", "advectio.yaml:1: on: at_once: a number is wanted, 1 to 64"},
        Wrong{"on: {timeout: soon}\n", "advectio.yaml:1: on: timeout: 'soon' is not a duration; write e.g. 30s"},
        Wrong{"log:\n---\nlog:\n", "advectio.yaml:3: a second YAML document; only one is read"},
        Wrong{"# log\n, nothing\nlog:\n", "advectio.yaml:2: not YAML: what stands here belongs nowhere"}));

INSTANTIATE_TEST_SUITE_P(
    Ranges, Refuses,
    testing::Values(Wrong{"stage:\n  segment_bytes: 512KiB\n",
                          "advectio.yaml:2: stage.segment_bytes: 512KiB is too small; the least is 1MiB"},
                    Wrong{"stage:\n  segment_bytes: 2GiB\n",
                          "advectio.yaml:2: stage.segment_bytes: 2GiB is too large; the most is 1GiB"},
                    Wrong{
                        "stage:\n  segment_bytes: 2MB\n",
                        "advectio.yaml:2: stage.segment_bytes: 2MB is not a multiple of 4096 bytes; 1952KiB would be"},
                    Wrong{"server:\n  memory_max: 1KiB\n",
                          "advectio.yaml:2: server.memory_max: 1KiB is too small; the least is 1MiB"}));

INSTANTIATE_TEST_SUITE_P(
    WhatCannotBeTogether, Refuses,
    testing::Values(
        Wrong{"stage:\n  spill_max: 1GiB\n",
              "advectio.yaml:2: stage.spill_max: there is nowhere to spill to; name a directory on a disk with "
              "stage.spill"},
        Wrong{"datasets:\n  - match: a\n    full: spill\n",
              "advectio.yaml:3: full: spill has nowhere to spill to; name a directory on a disk with stage.spill"},
        Wrong{"datasets:\n  - match: a\n    promise: durable\n    durable: false\n",
              "advectio.yaml:3: datasets[0].promise: durable cannot be kept with durable: false in the same rule"},
        Wrong{"datasets:\n  - match: a\n    promise: durable\n    full: drop-frame\n",
              "advectio.yaml:4: datasets[0].full: drop-frame cannot be for what is promised to be durable"},
        Wrong{"datasets:\n  - match: a\n    join: true\n    full: drop-frame\n",
              "advectio.yaml:4: datasets[0].full: drop-frame cannot be for tiles that become one file (join: true)"},
        Wrong{"datasets:\n  - match: a\n    join: true\n    appear: complete\n",
              "advectio.yaml:4: datasets[0].appear: tiles that become one file (join: true) cannot be held back; leave "
              "it out"},
        Wrong{"datasets:\n  - match: a\n    format: zarr\n    appear: frame\n",
              "advectio.yaml:4: datasets[0].appear: what is no file (format) cannot be held back; leave it out"},
        Wrong{"datasets:\n  - match: a\n    outputs: [{path: small}]\n",
              "advectio.yaml:3: datasets[0].outputs[0].path: 'small' needs {name}, for the name of the program's file"},
        Wrong{"datasets:\n  - match: a\n    outputs: [{path: \"{name}\"}]\n",
              "advectio.yaml:3: datasets[0].outputs[0].path: '{name}' is no other file than the program's"},
        Wrong{"datasets:\n  - match: a\n    outputs: [{path: \"x{name}\", promise: durable}]\n",
              "advectio.yaml:3: datasets[0].outputs[0]: unknown key promise; known: path, variables, expressions, "
              "region, subset, coarsen, levels, regrid, points, units, cf, time, min_count, closed, split, mean, min, "
              "minimum, max, maximum, sum, difference, point, codec, level, deflate, shuffle, chunks, format, round, "
              "stream, durable"},
        Wrong{"datasets:\n  - match: a\n    outputs:\n      - {path: \"x{name}\", codec: zstd}\n"
              "      - {path: \"d/{name}\", meen: 1d}\n",
              "advectio.yaml:5: datasets[0].outputs[1]: unknown key meen; did you mean mean?"},
        Wrong{"datasets:\n  - match: a\n    outputs: [{path: \"{name}\", mean: 1d}]\n",
              "advectio.yaml:3: datasets[0].outputs[0].path: '{name}' is no other file than the program's"},
        Wrong{"datasets:\n  - match: a\n    outputs: [{path: \"x{name}\"}, {path: \"x{name}\", mean: 1d}]\n",
              "advectio.yaml:3: datasets[0].outputs[1].path: 'x{name}' is the path of outputs[0], too"},
        Wrong{"datasets:\n  - match: a\n    outputs: [{path: a.nc, mean: 1d, format: bp5}]\n",
              "advectio.yaml:3: datasets[0].outputs[0].format: operators make no bp5 and no sst yet; only outputs "
              "without operators do"},
        Wrong{"datasets:\n  - match: a\n    format: bp5\n    outputs: [{path: a.nc, mean: 1d}]\n",
              "advectio.yaml:4: datasets[0].outputs: operators do not read what ADIOS2 writes; leave out format: bp5"},
        Wrong{"datasets:\n  - match: a\n    capture: false\n    outputs: [{path: a.nc, mean: 1d}]\n",
              "advectio.yaml:4: datasets[0].outputs cannot be of files that are left to the library (capture: false)"},
        Wrong{"datasets:\n  - match: a\n    outputs: [{path: \"x{name}\", codec: zstd, format: classic}]\n",
              "advectio.yaml:3: datasets[0].outputs[0].codec: zstd cannot be: the classic formats have no compression"},
        Wrong{"datasets:\n  - match: a\n    join: true\n    outputs: [{path: \"x{name}\"}]\n",
              "advectio.yaml:4: datasets[0].outputs cannot be of tiles that become one file (join: true)"},
        Wrong{"stage:\n  bytes_max: 3MiB\n",
              "advectio.yaml:2: stage.bytes_max (3MiB) holds fewer than two segments of 2MiB (stage.segment_bytes, "
              "default); make stage.bytes_max at least 4MiB or stage.segment_bytes smaller"},
        Wrong{"stage:\n  segment_bytes: 64MiB\n  bytes_max: 100MiB\n",
              "advectio.yaml:3: stage.bytes_max (100MiB) holds fewer than two segments of 64MiB (stage.segment_bytes, "
              "advectio.yaml:2); make stage.bytes_max at least 128MiB or stage.segment_bytes smaller"},
        Wrong{"stage:\n  bytes_max: 1GiB\n  warm_bytes: 2GiB\n",
              "advectio.yaml:3: stage.warm_bytes (2GiB) is more than stage.bytes_max (1GiB); make it at most that"},
        Wrong{"datasets:\n  - match: a\n    level: 3\n",
              "advectio.yaml:3: datasets[0].level: the scale belongs to a codec; name the codec in the same rule"},
        Wrong{"datasets:\n  - match: a\n    codec: asked\n    level: 3\n",
              "advectio.yaml:4: datasets[0].level: the scale belongs to a codec; name the codec in the same rule"},
        Wrong{"datasets:\n  - match: a\n    codec: lz4\n    level: 3\n",
              "advectio.yaml:4: datasets[0].level: codec lz4 has no levels; leave it out"},
        Wrong{"datasets:\n  - match: a\n    codec: deflate\n    level: 9\n",
              "advectio.yaml:4: datasets[0].level: 9 is outside 0 to 3 of deflate by isal; for higher levels say "
              "deflate: libdeflate in the same rule"},
        Wrong{"datasets:\n  - match: a\n    level: 0\n    codec: zstd\n",
              "advectio.yaml:3: datasets[0].level: 0 is outside 1 to 22 of zstd"},
        Wrong{"datasets:\n  - match: a\n    codec: blosc-zstd\n    level: 10\n",
              "advectio.yaml:4: datasets[0].level: 10 is outside 1 to 9 of blosc-zstd"},
        Wrong{"datasets:\n  - match: a\n    format: cdf5\n    codec: zstd\n",
              "advectio.yaml:4: datasets[0].codec: zstd cannot be: the classic formats have no compression"},
        Wrong{"datasets:\n  - match: a\n    format: bp5\n    codec: zstd\n",
              "advectio.yaml:4: datasets[0].codec: zstd cannot be: of our codecs ADIOS2 has blosc-lz4 and blosc-zstd"},
        Wrong{
            "datasets:\n  - {match: a, format: sst, stream: {Queuelimit: 2}}\n",
            "advectio.yaml:2: datasets[0].stream: 'Queuelimit' is no parameter of a stream; did you mean QueueLimit?"},
        Wrong{"datasets:\n  - {match: a, format: sst, stream: {QueueLimit: 0}}\n",
              "advectio.yaml:2: datasets[0].stream: QueueLimit: '0' is not a whole number from 1 to 10000"},
        Wrong{"datasets:\n  - {match: a, format: sst, stream: {QueueFullPolicy: Block}}\n",
              "advectio.yaml:2: datasets[0].stream: QueueFullPolicy is always Discard: with Block a reader that stands "
              "still would stop the server"},
        Wrong{
            "datasets:\n  - {match: a, format: sst, stream: {OpenTimeoutSecs: 5}}\n",
            "advectio.yaml:2: datasets[0].stream: OpenTimeoutSecs is a reader's parameter: set it in the program that "
            "reads"},
        Wrong{"datasets:\n  - {match: a, format: sst, stream: {DataTransport: wan}}\n",
              "advectio.yaml:2: datasets[0].stream: DataTransport: 'wan' is none of WAN, RDMA, UCX"},
        Wrong{"datasets:\n  - {match: a, format: bp5, stream: {QueueLimit: 2}}\n",
              "advectio.yaml:2: datasets[0].stream is of a stream; name format: sst in the same rule"},
        Wrong{"datasets:\n  - match: a\n    format: sst\n    chunks: {lev: 1}\n",
              "advectio.yaml:4: datasets[0].chunks cannot be: ADIOS2 has blocks as they were put"},
        Wrong{"datasets:\n  - match: a\n    format: zarr\n    codec: szip\n",
              "advectio.yaml:4: datasets[0].codec: szip cannot be: Zarr has no such codec; take deflate, zstd, lz4, "
              "blosc-lz4 or blosc-zstd"},
        Wrong{"datasets:\n  - match: a\n    format: classic\n    chunks: {lev: 1}\n",
              "advectio.yaml:4: datasets[0].chunks cannot be: the classic formats have no chunks"}));

INSTANTIATE_TEST_SUITE_P(
    Patterns, Refuses,
    testing::Values(
        Wrong{"datasets:\n  - match: \"\"\n", "advectio.yaml:2: datasets[0].match: '': the pattern is empty"},
        Wrong{"datasets:\n  - match: \"wrf[out\"\n",
              "advectio.yaml:2: datasets[0].match: 'wrf[out': the pattern has a '[' without its ']'"},
        Wrong{"datasets:\n  - match: 'wrf\\'\n",
              "advectio.yaml:2: datasets[0].match: 'wrf\\': the pattern ends in a single backslash"},
        Wrong{"datasets:\n  - match: [a]\n",
              "advectio.yaml:2: datasets[0].match: a pattern like \"wrfout_*\" is wanted"},
        Wrong{
            "datasets:\n  - match: out/wrf*\n",
            "advectio.yaml:2: datasets[0].match: 'out/wrf*' can match nothing: with a / in it, it is held against the "
            "absolute path; begin it with / or */"},
        Wrong{"datasets:\n  - match: a\n    round: {\"[T\": 3}\n",
              "advectio.yaml:3: datasets[0].round: '[T': the pattern has a '[' without its ']'"}));

TEST(Config, SaysTheLineWhereTheTextIsNotYaml) {
  EXPECT_THAT(refusal("stage:\n  directory: [/x\nlog:\n"), HasSubstr("advectio.yaml:3: not YAML: "));
  EXPECT_THAT(refusal("stage:\n\tdirectory: /x\n"), HasSubstr("advectio.yaml:2: not YAML: "));
  EXPECT_THAT(refusal("datasets:\n  - match: *out\n"), HasSubstr("advectio.yaml:2: not YAML: "));
  EXPECT_THAT(refusal("datasets:\n  - match: *out\n"), HasSubstr("a pattern that begins with * or & stands in quotes"));
}

TEST(Config, SaysThatIndentationMayBeWhyTheTextIsNotYaml) {
  const std::string question = "; is this line, or one above it, indented otherwise than its neighbours?";
  EXPECT_EQ(refusal("stage:\n  wait_max: 1s\n   warm_bytes: 0\n"),
            "advectio.yaml:3: not YAML: illegal map value" + question);
  EXPECT_EQ(refusal("stage:\n    wait_max: 1s\n  warm_bytes: 0\n"),
            "advectio.yaml:3: not YAML: end of map not found" + question);
  const std::string tab = "not YAML: the line is indented with a tab; YAML takes blanks only";
  EXPECT_EQ(refusal("datasets:\n\t- match: a\n"), "advectio.yaml:2: " + tab);
  EXPECT_EQ(refusal("stage:\n  wait_max: 1s\n \twarm_bytes: 0\n"), "advectio.yaml:3: " + tab);
}

TEST(Config, FitsTheDefaultWarmBytesToASmallCap) {
  const Config config = parsed("stage: {bytes_max: 64MiB}\n");
  EXPECT_EQ(config.stage.warm_bytes, 64ULL << 20);
  EXPECT_EQ(config.origins.at("stage.warm_bytes"), "default");
}

TEST(Config, LoadNamesTheFileThatIsNotThere) {
  auto config = load_config("/nowhere/advectio.yaml");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().message, "config /nowhere/advectio.yaml: No such file or directory");
  auto directory = load_config("/");
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.error().message, HasSubstr("config /: Is a directory"));
}

TEST(Config, LoadReadsNoMoreThanAConfigCanBe) {
  auto endless = load_config("/dev/zero");
  ASSERT_FALSE(endless.ok());
  EXPECT_THAT(endless.error().message, HasSubstr("larger than 1 MiB"));
}

TEST(Config, WhatIsQuotedOfTheTextMakesNoSecondLine) {
  EXPECT_THAT(refusal("\"lo\\ng\": {}\n"), HasSubstr("unknown key lo g"));
}

void expect_same(const Config& a, const Config& b) {
  EXPECT_EQ(a.stage, b.stage);
  EXPECT_EQ(a.server, b.server);
  EXPECT_EQ(a.log, b.log);
  ASSERT_EQ(a.datasets.size(), b.datasets.size());
  for (std::size_t i = 0; i < a.datasets.size(); ++i) {
    EXPECT_EQ(a.datasets[i].match, b.datasets[i].match);
    EXPECT_EQ(a.datasets[i].values, b.datasets[i].values);
  }
}

TEST(Config, ExplainedAndParsedAgainIsTheSame) {
  expect_same(parsed(to_yaml(default_config())), default_config());

  // Any config that parses: keys drawn at random, values drawn from what each may be.
  const std::vector<std::pair<std::string, std::vector<std::string>>> stage = {
      {"directory", {"/tmp", "\"a b: #c\"", "'~'", "\"tab\\there\"", "./x"}},
      {"bytes_max", {"auto", "3GiB", "2.5GB", "100000001KB"}},
      {"segment_bytes", {"1MiB", "4100KiB", "64MiB"}},
      {"warm_bytes", {"0", "1B", "12345678B"}},
      {"wait_max", {"0", "1ms", "90s", "1.5h", "61s"}}};
  const std::vector<std::pair<std::string, std::vector<std::string>>> rule = {
      {"capture", {"true", "false"}},
      {"codec", {"asked", "none", "szip", "lz4", "deflate", "blosc-lz4"}},
      {"deflate", {"isal", "libdeflate"}},
      {"shuffle", {"asked", "none", "byte", "bit"}},
      {"chunks", {"asked", "{a: 1, \"b c\": 18446744073709551615}"}},
      {"format", {"asked", "netcdf4", "netcdf4-classic"}},
      {"round", {"none", "{T: 1, \"*\": 52, \"null\": 3}"}},
      {"durable", {"true", "false"}},
      {"outputs",
       {"none", "[{path: \"s/{name}\"}]",
        "[{path: \"{name}.x\", codec: deflate, level: 2, chunks: {a: 1}}, {path: \"/b {name}\", format: cdf5, round: "
        "{T: "
        "9}}]",
        "[{path: \"{name}.x\", level: 2, codec: deflate}, {path: \"d/{name}\", variables: [T2, \"U*\"], levels: "
        "{pressure: [850, 500 hPa], preset: wrf}, cf: true, time: [{mean: 1d}, {maximum: 1w}]}]"}},
      {"close", {"async", "wait"}}};
  std::mt19937 random(7);
  const auto draw = [&](const auto& table, const std::string& indent) {
    std::string text;
    for (const auto& [key, values] : table)
      if (random() % 2 == 0) text += indent + key + ": " + values[random() % values.size()] + "\n";
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    std::string text = "stage:\n" + draw(stage, "  ") + "datasets:\n";
    for (unsigned i = 0; i < random() % 4; ++i) text += "  - match: \"w*?\\\\[\"\n" + draw(rule, "    ");
    SCOPED_TRACE(text);
    if (text.find("capture: false") != std::string::npos && text.find("cf: true") != std::string::npos) continue;
    const Config config = parsed(text);
    expect_same(parsed(to_yaml(config)), config);
  }
}

TEST(Config, AnOutputIsAFileOfItsOwn) {
  const Config config =
      parsed("datasets: [{match: a*, codec: zstd, outputs: [{path: \"small/{name}\", format: cdf5}]}]");
  const auto policy = resolve(config, "/run/a.nc");
  ASSERT_EQ(policy.outputs.size(), 1U);
  EXPECT_EQ(policy.outputs[0].policy.format, FileFormat::cdf5);
  EXPECT_EQ(policy.outputs[0].policy.codec, Codec::asked) << "not that of the rule";
  EXPECT_EQ(output_path(policy.outputs[0], "/run/a.nc"), "/run/small/a.nc");
  EXPECT_EQ(output_path({"/arch/{name}/{name}.x", {}}, "/run/a.nc"), "/arch/a.nc/a.nc.x");
}

TEST(Config, OperatorsTellAnOutputThatProcessMakesFromOneOfTheServer) {
  const Config config = parsed(
      "datasets:\n"
      "  - match: \"wrfout_*\"\n"
      "    outputs:\n"
      "      - {path: \"daily/{name}\", variables: [T2], mean: 1d, cf: true}\n"
      "      - {path: \"small/{name}\", codec: zstd}\n"
      "      - {path: points.nc, points: no-such-file.csv}\n");
  const auto policy = resolve(config, "/run/wrfout_d01");
  ASSERT_EQ(policy.outputs.size(), 1U);
  EXPECT_EQ(policy.outputs[0].path, "small/{name}");
  ASSERT_EQ(policy.processed.size(), 2U);
  EXPECT_EQ(policy.processed[0].number, 0U);
  EXPECT_EQ(policy.processed[0].path, "daily/{name}");
  EXPECT_EQ(policy.processed[0].origin, "advectio.yaml:4");
  EXPECT_EQ(policy.processed[0].text, "{path: \"daily/{name}\", variables: [T2], mean: 1d, cf: true}");
  EXPECT_EQ(policy.processed[1].number, 2U) << "a server must not fail where a file of places is not there any more";
}

TEST(Config, ZarrHasChunksAndCodecs) {
  const Config config = parsed("datasets: [{match: a*, format: zarr, codec: zstd, level: 3, chunks: {lev: 1}}]");
  const auto policy = resolve(config, "/run/a.nc");
  EXPECT_EQ(policy.format, FileFormat::zarr);
  EXPECT_EQ(policy.codec, Codec::zstd);
  EXPECT_EQ(policy.chunks.size(), 1U);
}

TEST(Config, ExampleIsTheDefaultsAndNamesEveryKey) {
  const Config config = parsed(example_yaml());
  EXPECT_EQ(config.stage, StageConfig{});
  EXPECT_EQ(config.server, ServerConfig{});
  EXPECT_EQ(config.log, LogConfig{});
  EXPECT_EQ(resolve(config, "/any"), DatasetPolicy{});
  for (const auto& value : explain(config)) EXPECT_NE(value.origin, "default") << value.key << " is not in the example";
}

TEST(Config, ReferencePageHoldsTheTablesOfTheCode) {
  std::ifstream in(std::string(ADVECTIO_SOURCE_DIR) + "/docs/configuration.md");
  std::ostringstream page;
  page << in.rdbuf();
  EXPECT_THAT(page.str(), HasSubstr(reference_markdown()))
      << "put the output of `advectiod config --reference` into docs/configuration.md";
}

TEST(Config, JsonGivesValueOriginAndNumber) {
  const std::string json = to_json(parsed("stage:\n  bytes_max: 4GiB\ndatasets:\n  - match: a\n    codec: zstd\n"));
  EXPECT_THAT(
      json,
      HasSubstr("\"key\": \"stage.bytes_max\",\n      \"value\": \"4GiB\",\n      \"origin\": \"advectio.yaml:2\""));
  EXPECT_THAT(json, HasSubstr("\"number\": 4294967296.0"));
  EXPECT_THAT(
      json,
      HasSubstr("\"key\": \"codec\",\n          \"value\": \"zstd\",\n          \"origin\": \"advectio.yaml:5\""));
}

TEST(Sizes, ReadBackAsWritten) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bytes = random() >> (4 + random() % 60);
    auto again = parse_size(size_text(bytes));
    ASSERT_TRUE(again.ok()) << size_text(bytes);
    EXPECT_EQ(*again, bytes);
  }
  EXPECT_EQ(size_text(512ULL << 20), "512MiB");
  EXPECT_EQ(size_text(1'500'000'000), "1500MB");
  EXPECT_EQ(size_text(4097), "4097B");
  EXPECT_EQ(*parse_size("1.5GB"), 1'500'000'000U);
  EXPECT_EQ(*parse_size("64 KiB"), 65536U);
}

TEST(Durations, ReadBackAsWritten) {
  for (const char* text : {"0", "500ms", "30s", "10min", "2h", "1500ms"})
    EXPECT_EQ(duration_text(*parse_duration(text)), text);
  EXPECT_EQ(*parse_duration("1.5s"), std::chrono::milliseconds(1500));
}

TEST(Couple, ReadsEveryKeyOfARule) {
  const Config config = parsed(R"(workflow: {directory: w, name: scale, wait_max: 5s, restart_max: 2s}
couple:
  - match: "hist.{m}.nc"
    from: "fc-{m}"
    to: [letkf, plots]
    mode: memory+file
    when: sync
    keep: read
    exclude: ["*0000*"]
    variables: [T, "Q*"]
  - {match: "/run/*.nc", from: letkf, to: "fc-*"}
)");
  ASSERT_EQ(config.couple.size(), 2U);
  const auto& rule = config.couple[0];
  EXPECT_EQ(rule.from, std::vector<std::string>{"fc-{m}"});
  EXPECT_EQ(rule.to, (std::vector<std::string>{"letkf", "plots"}));
  EXPECT_EQ(rule.mode, CoupleRule::Mode::memory_and_file);
  EXPECT_EQ(rule.when, CoupleRule::When::sync);
  EXPECT_EQ(rule.keep, CoupleRule::Keep::read);
  EXPECT_EQ(rule.exclude, std::vector<std::string>{"*0000*"});
  EXPECT_EQ(rule.variables, (std::vector<std::string>{"T", "Q*"}));
  EXPECT_EQ(rule.origin, "advectio.yaml:3");
  EXPECT_EQ(config.workflow.name, "scale");
  EXPECT_EQ(config.workflow.restart_max, std::chrono::seconds(2));
  const Config again = parsed(to_yaml(config));
  ASSERT_EQ(again.couple.size(), 2U);
  EXPECT_EQ(again.couple[0].match, rule.match);
  EXPECT_EQ(again.couple[0].variables, rule.variables);
}

TEST(Couple, RefusesWhatCannotBeRight) {
  const auto of = [](const std::string& rule) { return refusal("couple:\n  - {" + rule + "}\n"); };
  EXPECT_THAT(of("match: x, from: a"), HasSubstr("advectio.yaml:2: couple[0]: to is missing"));
  EXPECT_THAT(of("match: x, from: a, to: b, mod: file"), HasSubstr("couple[0].mod; did you mean couple.mode?"));
  EXPECT_THAT(of("match: x, from: a, to: b, mode: disk"), HasSubstr("none of: memory, memory+file, file"));
  EXPECT_THAT(of("match: \"h.{m}\", from: \"f-{n}\", to: b"), HasSubstr("couple[0].from: {n} is not in match"));
  EXPECT_THAT(of("match: \"h.{m\", from: a, to: b"), HasSubstr("a '{' that begins no {name}"));
  EXPECT_THAT(of("match: \"{m}.{m}\", from: a, to: b"), HasSubstr("has {m} twice"));
  EXPECT_THAT(of("match: a/x, from: a, to: b"), HasSubstr("begin it with / or */"));
  EXPECT_THAT(of("match: x, from: a b, to: b"), HasSubstr("is no name of a program"));
  EXPECT_THAT(of("match: x, from: a, to: b, variables: T"), HasSubstr("say mode: memory+file"));
  EXPECT_THAT(of("match: x.{m}, from: a, to: b"), HasSubstr("stands in quotes"));
}

TEST(Couple, FillsInWhatANameHolds) {
  CoupleRule rule;
  rule.match = "/run/{cycle}/hist.{m}.pe*.nc";
  const auto captures = couples(rule, "/run/0007/hist.03.pe000001.nc");
  ASSERT_TRUE(captures.has_value());
  EXPECT_EQ(filled_in({"fc-{m}-{cycle}"}, *captures), std::vector<std::string>{"fc-03-0007"});
  EXPECT_FALSE(couples(rule, "/run/0007/hist.nc"));
  EXPECT_FALSE(couples(rule, "/other/0007/hist.03.pe000001.nc"));
  rule.exclude = {"/run/0000/*"};
  EXPECT_TRUE(couples(rule, "/run/0007/hist.03.pe000001.nc"));
  EXPECT_FALSE(couples(rule, "/run/0000/hist.03.pe000001.nc"));
  rule.match = "a[0-9]?.{x}+(1).nc";
  EXPECT_TRUE(couples(rule, "/d/a7z.q+(1).nc"));
  EXPECT_FALSE(couples(rule, "/d/abz.q+(1).nc"));
}

}  // namespace
}  // namespace advectio
