// What every sink must do where it is abandoned, its process dies, or the disk refuses.
#include <netcdf.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "platform/faulty_files.h"
#include "sinks/every_sink.h"

namespace advectio {
namespace {

using testing::difference;
using testing::EverySink;
using testing::model_of;
using testing::OwnedBlock;
using testing::Random;

TEST_P(EverySink, AbandonLeavesTheLastCommit) {
  for (std::uint64_t seed = 201; seed <= 215; seed += GetParam().every) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto s = story(seed, 2);
    place(path_);
    auto sink = open();
    ASSERT_OK(sink->declare(s.schema));
    ASSERT_OK(put(*sink, s.frames[0]));
    ASSERT_OK(sink->commit());
    const auto before = contents();
    const auto bytes = bytes_there();
    ASSERT_OK(put(*sink, s.frames[1]));
    sink->abandon();
    if (GetParam().exact_after_crash) {
      ASSERT_EQ(difference(before, contents(), model_of(s.schema, s.blocks(1)).written), "");
      EXPECT_EQ(bytes_there(), bytes);
    }
    EXPECT_THAT(litter(), ::testing::IsEmpty());

    sink = open(true);
    sink->set_frames(1);
    ASSERT_OK(sink->declare(s.schema));
    ASSERT_OK(put(*sink, s.frames[1]));
    ASSERT_OK(sink->close());
    ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(2)));
  }
}

TEST_P(EverySink, AbandonBeforeAnyCommitLeavesAnEmptyFile) {
  const auto s = story(7, 1);
  auto sink = open();
  ASSERT_OK(sink->declare(s.schema));
  ASSERT_OK(put(*sink, s.frames[0]));
  sink->abandon();
  EXPECT_EQ(bytes_there(), 0U);
}

// The process is killed at every call in turn (between two calls; test_crash.cpp cuts within them).
TEST_P(EverySink, GoesOnWhereAKilledProcessStopped) {
  no_threads();
  for (std::uint64_t seed = 301; seed <= 306; seed += GetParam().every) {
    const auto s = story(seed, 3);
    const std::size_t calls = 1 + s.blocks(3).size() + 3;
    for (std::size_t stop = 0; stop <= calls; stop += 1 + calls / 12) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", killed after call " + std::to_string(stop));
      std::filesystem::remove_all(path_);
      place(path_);
      int pipe_ends[2];
      ASSERT_EQ(::pipe(pipe_ends), 0);
      const pid_t child = ::fork();
      if (child == 0) {
        std::size_t left = stop;
        const auto tick = [&] {
          if (left-- == 0) ::kill(::getpid(), SIGKILL);
        };
        Executor here(0);
        auto sink = testing::fed(GetParam().open(system_files(), path_, here, false));
        tick();
        (void)(*sink)->declare(s.schema);
        for (const auto& frame : s.frames) {
          for (const auto& b : frame) {
            tick();
            (void)(*sink)->write(b.block);
          }
          tick();
          if ((*sink)->commit().ok()) (void)!::write(pipe_ends[1], "c", 1);
        }
        ::kill(::getpid(), SIGKILL);
      }
      ::close(pipe_ends[1]);
      std::size_t committed = 0;
      char c = 0;
      while (::read(pipe_ends[0], &c, 1) == 1) ++committed;
      ::close(pipe_ends[0]);
      ASSERT_EQ(::waitpid(child, nullptr, 0), child);

      if (committed > 0 && GetParam().exact_after_crash) {
        ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(committed)));
      } else if (committed > 0) {
        ASSERT_EQ(contents().schema.dimensions, model_of(s.schema, s.blocks(committed)).contents.schema.dimensions);
      }
      auto sink = open(true);
      sink->set_frames(committed > 0 && stop % 2 == 0 ? committed - 1 : committed);
      ASSERT_OK(sink->declare(s.schema));
      // Replay from the last commit that is known of, or from one before it: both are right.
      for (std::size_t f = committed > 0 && stop % 2 == 0 ? committed - 1 : committed; f < s.frames.size(); ++f) {
        ASSERT_OK(put(*sink, s.frames[f]));
        ASSERT_OK(sink->commit());
      }
      ASSERT_OK(sink->close());
      ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(3)));
      ASSERT_THAT(litter(), ::testing::IsEmpty());
    }
  }
}

TEST_P(EverySink, IsNotClosedAsLongAsSomethingStaysBesideTheFile) {
  if (!GetParam().redo_in_each_commit) GTEST_SKIP() << GetParam().name << ": no redo file beside it in each commit";
  const auto s = story(411, 3);
  auto faults = std::make_shared<Faults>();
  FaultyFiles files(system_files(), faults);
  const auto names = [this] { return system_files().list(directory_).value(); };
  {
    auto sink = open(false, files);
    ASSERT_OK(sink->declare(s.schema));
    for (const auto& f : s.frames) {
      ASSERT_OK(put(*sink, f));
      ASSERT_OK(sink->commit());
      ASSERT_OK(sink->make_durable()());
    }
    faults->syncs_until = 0;
    EXPECT_FALSE(sink->close().ok());
  }
  EXPECT_EQ(names().size(), 2U);
  faults->syncs_until = Faults::never;
  auto sink = open(true, files);
  ASSERT_OK(sink->declare(s.schema));
  ASSERT_OK(sink->close());
  EXPECT_EQ(names(), std::vector<std::string>{"out.nc"});
}

TEST_P(EverySink, GoesOnWhereTheDiskLetNothingGoThatWasBesideTheFile) {
  if (!GetParam().redo_in_each_commit) GTEST_SKIP() << GetParam().name << ": no redo file beside it in each commit";
  const auto s = story(412, 1);
  auto faults = std::make_shared<Faults>();
  FaultyFiles files(system_files(), faults);
  {
    auto sink = open(false, files);
    ASSERT_OK(sink->declare(s.schema));
    ASSERT_OK(put(*sink, s.frames[0]));
    faults->keeps_names = true;
    EXPECT_FALSE(sink->commit().ok());
    sink->abandon();
  }
  faults->keeps_names = false;
  auto sink = open(true, files);
  ASSERT_OK(sink->declare(s.schema));
  ASSERT_OK(put(*sink, s.frames[0]));
  ASSERT_OK(sink->close());
}

TEST_P(EverySink, SaysThatTheDiskIsFullAndGoesOnLater) {
  if (!GetParam().own_files) GTEST_SKIP() << GetParam().name << ": a library writes the files";
  for (std::uint64_t seed = 401; seed <= 402; ++seed) {
    const auto s = story(seed, 3);
    std::uint64_t needed = 0;
    {
      place(path_);
      auto sink = open();
      ASSERT_OK(sink->declare(s.schema));
      for (const auto& f : s.frames) {
        ASSERT_OK(put(*sink, f));
        ASSERT_OK(sink->commit());
      }
      needed = sink->counters().bytes_out;
      ASSERT_OK(sink->close());
    }
    // Enough to open a sink.
    for (std::uint64_t space = 64; space < needed; space += 1 + needed / 20) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", space for " + std::to_string(space) + " of " +
                   std::to_string(needed));
      std::filesystem::remove_all(path_);
      place(path_);
      auto faults = std::make_shared<Faults>();
      faults->space = space;
      FaultyFiles files(system_files(), faults);
      std::size_t committed = 0;
      std::optional<Error> error;
      {
        auto sink = open(false, files);
        if (auto r = sink->declare(s.schema); !r) error = r.error();
        for (std::size_t f = 0; f < s.frames.size() && !error; ++f) {
          if (auto r = put(*sink, s.frames[f]); !r) error = r.error();
          if (error) break;
          if (auto r = sink->commit(); !r)
            error = r.error();
          else
            ++committed;
        }
        if (!error) {
          // How much is needed varies a little with the order in which chunks are ready.
          ASSERT_GT(space, needed * 9 / 10);
          break;
        }
        EXPECT_EQ(error->code, Code::full) << error->message;
        EXPECT_EQ(error->sys, ENOSPC) << error->message;
        // It stays failed, and says the same.
        const auto again = sink->commit();
        ASSERT_FALSE(again.ok());
        EXPECT_EQ(again.error().sys, ENOSPC);
        sink->abandon();
      }
      faults->space = Faults::never;
      auto sink = open(true, files);
      sink->set_frames(committed);
      ASSERT_OK(sink->declare(s.schema));
      for (std::size_t f = committed; f < s.frames.size(); ++f) ASSERT_OK(put(*sink, s.frames[f]));
      ASSERT_OK(sink->close());
      ASSERT_NO_FATAL_FAILURE(expect_file(s.schema, s.blocks(3)));
    }
  }
}

// As a full disk, also for what a library writes by itself: the system refuses to let files grow.
TEST_P(EverySink, FailsWhenTheFileMayNotGrow) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const Schema s = of_one_variable({{"t", 0, true}, {"x", 100000, false}});
  Random random(1);
  const auto block = [&](std::uint64_t t) {
    return OwnedBlock(0, Box{{t, 0}, {1, 100000}}, testing::random_values(random, DataType::float64, 100000));
  };
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  const auto first = block(0), second = block(1);
  ASSERT_OK(sink->write(first.block));
  ASSERT_OK(sink->commit());
  rlimit small = old;
  small.rlim_cur = GetParam().abilities.directory ? 500000 : 1000000;  // a directory gets a new file for each frame
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto result = sink->write(second.block);
  if (result.ok()) result = sink->commit();
  sink->abandon();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  (void)std::signal(SIGXFSZ, before);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().sys, EFBIG) << result.error().message;
  EXPECT_EQ(contents().values[0], first.data);
  sink = open(true);
  sink->set_frames(1);
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->write(second.block));
  ASSERT_OK(sink->close());
  auto both = first.data;
  both.insert(both.end(), second.data.begin(), second.data.end());
  EXPECT_EQ(contents().values[0], both);
}

// An earlier server let netCDF-C count a record in the classic header before all of it was written.
TEST_P(EverySink, RecordsThatAreCountedAndNotCommittedAreFilledAgain) {
  no_threads();
  if (!is_classic(GetParam().ability.formats[0]))
    GTEST_SKIP() << GetParam().name << ": counts nothing before its commit";
  for (const auto format : GetParam().ability.formats) {
    Schema s;
    s.format = format;
    s.dimensions = {{"t", 0, true}, {"x", 50, false}};
    for (const auto* name : {"a", "b"}) {
      Variable v;
      v.name = name;
      v.type = DataType::float64;
      v.dimensions = {0, 1};
      s.variables.push_back(v);
    }
    Random random(1);
    const OwnedBlock first(0, Box{{0, 0}, {1, 50}}, testing::random_values(random, DataType::float64, 50));
    const OwnedBlock second(0, Box{{1, 0}, {1, 50}}, testing::random_values(random, DataType::float64, 50));
    const pid_t dies = ::fork();
    if (dies == 0) {
      auto sink = open();
      if (!sink->declare(s) || !sink->write(first.block) || !sink->commit()) ::_exit(1);
      ::_exit(0);  // without a close
    }
    int status = 0;
    ::waitpid(dies, &status, 0);
    ASSERT_EQ(status, 0);
    {
      // As one that dies within its second commit leaves the file: two records are counted, nothing of the second is
      // there.
      auto file = system_files().open(path_, OpenMode::read_write);
      const std::byte two{2};
      ASSERT_TRUE((*file)->write(format == FileFormat::cdf5 ? 11 : 7, {&two, 1}).ok());
      ASSERT_TRUE((*file)->resize(*(*file)->size() + 800).ok());
    }
    auto sink = open(true);
    sink->set_frames(1);
    ASSERT_OK(sink->declare(s));
    ASSERT_OK(sink->write(second.block));
    ASSERT_OK(sink->close());
    const auto contents = this->contents();
    const auto* b = reinterpret_cast<const double*>(contents.values[1].data());
    EXPECT_EQ(contents.values[1].size(), 800U);
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(b[i], NC_FILL_DOUBLE) << i;
    EXPECT_EQ(litter(), std::vector<std::string>());
  }
}

/// What died before had begun to write, and had filled nothing.
TEST_P(EverySink, AFileThatWasNeverCommittedIsFilledAllTheSame) {
  Schema s = of_one_variable({{"y", 1000, false}, {"x", 500, false}}, DataType::float32);
  Variable other = s.variables[0];
  other.name = "b";
  s.variables.push_back(other);
  Random random(1);
  const std::vector<OwnedBlock> blocks = {
      {0, Box{{10, 0}, {600, 500}}, testing::random_values(random, DataType::float32, 300'000)},
      {1, Box{{999, 3}, {1, 7}}, testing::random_values(random, DataType::float32, 7)}};
  no_threads();
  const pid_t dies = ::fork();
  if (dies == 0) {
    auto sink = open();
    ::_exit(sink->declare(s).ok() && put(*sink, blocks).ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(dies, &status, 0);
  ASSERT_EQ(status, 0);
  auto sink = open(true);
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(put(*sink, blocks));
  ASSERT_OK(sink->close());
  ASSERT_NO_FATAL_FAILURE(expect_file(s, blocks));
  EXPECT_EQ(litter(), std::vector<std::string>());
}

TEST_P(EverySink, AFileWhoseBeginningCannotBeWrittenStaysAndIsBegunAgain) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const Schema s = of_one_variable({{"x", 100, false}});
  Random random(1);
  const OwnedBlock block(0, Box{{0}, {100}}, testing::random_values(random, DataType::float64, 100));
  rlimit none = old;
  none.rlim_cur = 0;
  auto sink = open();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  auto result = sink->declare(s);
  if (result.ok()) result = sink->write(block.block);
  if (result.ok()) result = sink->commit();
  sink.reset();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  (void)std::signal(SIGXFSZ, before);
  EXPECT_FALSE(result.ok());
  ASSERT_TRUE(std::filesystem::exists(path_));
  sink = open(true);
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->write(block.block));
  ASSERT_OK(sink->close());
  EXPECT_EQ(contents().values[0], block.data);
}

TEST_P(EverySink, WhatTheSystemRefusesAtTheOpeningDoesNotEmptyAFile) {
  const Schema s = of_one_variable({{"x", 100, false}});
  Random random(1);
  const OwnedBlock block(0, Box{{0}, {100}}, testing::random_values(random, DataType::float64, 100));
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->write(block.block));
  ASSERT_OK(sink->close());
  sink.reset();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  for (rlim_t more = 1; more < 4; ++more) {
    rlimit few = old;
    few.rlim_cur = static_cast<rlim_t>(next) + more;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    (void)GetParam().open(system_files(), path_, *executor_, true).ok();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
    EXPECT_EQ(contents().values[0], block.data);
  }
}

}  // namespace
}  // namespace advectio
