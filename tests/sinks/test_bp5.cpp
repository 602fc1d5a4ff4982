// What a format that only appends adds to the contract: refusals, growth, deaths within a library's
// writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>

#include "sinks/adios2/bp5_sink.h"
#include "sinks/adios2/committed_steps.h"
#include "sinks/bp5_reader.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"

namespace advectio {
namespace {

using testing::as_bp5_keeps;
using testing::difference;
using testing::model_of;
using testing::OwnedBlock;
using testing::Random;
using testing::read_bp5;

#define ASSERT_OK(expr)                                             \
  do {                                                              \
    const auto& ok_ = (expr);                                       \
    ASSERT_TRUE(ok_.ok()) << (ok_.ok() ? "" : ok_.error().message); \
  } while (false)

class Bp5 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = testing::why_no_adios2(); !why.empty()) GTEST_SKIP() << why;
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-bp5-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ + "/out.bp";
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  std::unique_ptr<testing::FedSink> open(std::uint64_t frames = 0, const Bp5Options& options = {}) {
    auto sink = testing::fed(open_bp5(system_files(), path_, options, frames > 0));
    EXPECT_TRUE(sink.ok()) << (sink.ok() ? "" : sink.error().message);
    (*sink)->set_frames(frames);
    return std::move(sink).value();
  }

  /// T(time, y, x), Q of the same, and H(y, x).
  static Schema schema() {
    Schema s;
    s.format = FileFormat::bp5;
    s.dimensions = {{"time", 0, true}, {"y", 40, false}, {"x", 50, false}};
    for (const auto* name : {"T", "Q", "H"}) {
      Variable v;
      v.name = name;
      v.type = DataType::float64;
      v.dimensions = {0, 1, 2};
      if (v.name == "H") v.dimensions.erase(v.dimensions.begin());
      s.variables.push_back(std::move(v));
    }
    return s;
  }
  static OwnedBlock block(std::uint32_t variable, std::optional<std::uint64_t> record, std::uint64_t rows = 40) {
    Random random(variable * 1000 + record.value_or(500));
    Box box{{0, 0}, {rows, 50}};
    if (record) box = {{*record, 0, 0}, {1, rows, 50}};
    return {variable, box, testing::random_values(random, DataType::float64, rows * 50)};
  }
  /// T and Q of one record, and H with the first.
  static std::vector<OwnedBlock> frame(std::uint64_t record) {
    std::vector<OwnedBlock> out = {block(0, record), block(1, record)};
    if (record == 0) out.push_back(block(2, std::nullopt));
    return out;
  }
  static std::vector<OwnedBlock> frames(std::uint64_t count) {
    std::vector<OwnedBlock> out;
    for (std::uint64_t f = 0; f < count; ++f)
      for (auto& b : frame(f)) out.push_back(std::move(b));
    return out;
  }
  /// The blocks stay, as their memory is lent.
  Result<void> put(testing::FedSink& sink, const std::vector<OwnedBlock>& blocks) {
    for (const auto& b : blocks) ADVECTIO_TRY(sink.write(lent_.emplace_back(b).block));
    return {};
  }
  void expect_file(const Schema& s, const std::vector<OwnedBlock>& blocks) {
    ASSERT_EQ(difference(as_bp5_keeps(model_of(s, blocks).contents), read_bp5(path_)), "");
  }

  std::string directory_, path_;
  std::deque<OwnedBlock> lent_;
};

TEST_F(Bp5, RefusesWhatItCannotAppendAndNamesTheVariable) {
  const auto s = schema();
  const auto refusal = [&](const std::vector<OwnedBlock>& second) {
    auto sink = open();
    EXPECT_TRUE(sink->declare(s).ok() && put(*sink, frame(0)).ok() && sink->commit().ok());
    auto done = put(*sink, second);
    if (done) done = sink->commit();
    EXPECT_FALSE(done.ok());
    sink->abandon();
    expect_file(s, frames(1));
    return done.ok() ? "" : done.error().message;
  };
  EXPECT_THAT(refusal({block(0, 0)}), ::testing::HasSubstr("record 0 of variable T is put again in frame 2"));
  EXPECT_THAT(refusal({block(2, std::nullopt, 7)}), ::testing::HasSubstr("variable H, which has no records"));
  auto strings = s;
  strings.variables[1].type = DataType::string;
  auto second = s;
  second.dimensions[1] = {"y", 0, true};
  auto renamed = s;
  renamed.variables[0].name = "temperature";
  auto taken = s;
  taken.variables[0].attributes = {{"dimensions", DataType::text, 1, Bytes(1, std::byte{'x'}), {}}};
  for (const auto& [schema, what] : {std::pair{strings, "variable Q is of type string"},
                                     std::pair{second, "variable T has the unlimited dimension y in place 2"},
                                     std::pair{taken, "attribute T:dimensions has the name"}}) {
    auto sink = open();
    ASSERT_OK(sink->declare(schema));
    const auto done = sink->commit();
    ASSERT_FALSE(done.ok());
    EXPECT_THAT(done.error().message, ::testing::HasSubstr(what));
  }
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(put(*sink, frame(0)));
  ASSERT_OK(sink->commit());
  ASSERT_OK(sink->declare(renamed));
  const auto done = sink->commit();
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.error().message, ::testing::HasSubstr("variable T is renamed to temperature"));
}

TEST_F(Bp5, AllOfAVariableWithoutRecordsMayBePutAgain) {
  const auto s = schema();
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(put(*sink, frame(0)));
  ASSERT_OK(sink->commit());
  Random random(9);
  const OwnedBlock again(2, Box{{0, 0}, {40, 50}}, testing::random_values(random, DataType::float64, 2000));
  ASSERT_OK(put(*sink, {block(0, 1), block(1, 1), again}));
  ASSERT_OK(sink->close());
  auto all = frames(2);
  all.push_back(again);
  expect_file(s, all);
}

TEST_F(Bp5, GrowsByVariablesAndAttributesAfterData) {
  auto s = schema();
  const auto text = [](const std::string& name, const std::string& value) {
    Attribute a{name, DataType::text, value.size(), Bytes(value.size()), {}};
    std::memcpy(a.values.data(), value.data(), value.size());
    return a;
  };
  s.attributes = {text("title", "one")};
  auto sink = open();
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(put(*sink, frame(0)));
  ASSERT_OK(sink->commit());
  expect_file(s, frames(1));
  auto more = s.variables[0];
  more.name = "U";
  more.attributes = {text("units", "m s-1")};
  s.variables.push_back(more);
  s.attributes[0] = text("title", "two, and longer");
  ASSERT_OK(sink->declare(s));
  auto all = frames(2);
  all.push_back(block(3, 1));
  ASSERT_OK(put(*sink, frame(1)));
  ASSERT_OK(put(*sink, {all.back()}));
  ASSERT_OK(sink->commit());
  // The record that U has not is one of fill values.
  expect_file(s, all);
  // An attribute after the last frame is in a step of its own.
  s.attributes[0] = text("title", "three");
  ASSERT_OK(sink->declare(s));
  ASSERT_OK(sink->close());
  expect_file(s, all);
}

TEST_F(Bp5, FramesThatComeAgainTakeThePlaceOfWhatTheyWere) {
  const auto s = schema();
  for (const bool durable : {false, true}) {
    // Without durability nothing but the last commit comes again.
    for (std::uint64_t from = durable ? 1 : 3; from <= 4; ++from) {
      SCOPED_TRACE((durable ? "durable, from frame " : "from frame ") + std::to_string(from + 1));
      std::filesystem::remove_all(path_);
      {
        auto sink = open();
        ASSERT_OK(sink->declare(s));
        for (std::uint64_t f = 0; f < 4; ++f) {
          ASSERT_OK(put(*sink, frame(f)));
          ASSERT_OK(sink->commit());
          if (durable && f == 0) ASSERT_OK(sink->make_durable()());
        }
      }
      auto sink = open(from);
      ASSERT_OK(sink->declare(s));
      for (auto f = from; f < 5; ++f) {
        ASSERT_OK(put(*sink, frame(f)));
        if (f % 2 == 0)
          ASSERT_OK(sink->commit());
        else
          sink->wait_for_the_next();
      }
      ASSERT_OK(sink->close());
      expect_file(s, frames(5));
    }
  }
}

TEST_F(Bp5, AFrameThatAProgramEndsTwiceGoesOnAfterADeath) {
  const auto s = schema();
  {
    auto sink = open();
    ASSERT_OK(sink->declare(s));
    ASSERT_OK(put(*sink, {block(0, 0), block(2, std::nullopt)}));
    ASSERT_OK(sink->commit());
  }
  auto sink = testing::fed(open_bp5(system_files(), path_, {}, true));
  ASSERT_OK(sink);
  ASSERT_OK((*sink)->declare(s));
  ASSERT_OK(put(**sink, {block(1, 0)}));  // frame 1 again
  ASSERT_OK((*sink)->close());
  expect_file(s, frames(1));
}

// The system ends the process at the write that makes a file longer than it may be: within ADIOS2.
TEST_F(Bp5, AProcessThatDiesWithinAWriteLeavesItsLastCommit) {
  const auto s = schema();
  const auto write_all = [&](testing::FedSink& sink, std::uint64_t from, int said) {
    if (!sink.declare(s)) return false;
    for (auto f = from; f < 4; ++f) {
      if (!put(sink, frame(f)) || !sink.commit()) return false;
      if (said >= 0) (void)!::write(said, "c", 1);
    }
    return true;
  };
  {
    auto sink = open();
    ASSERT_TRUE(write_all(*sink, 0, -1));
    ASSERT_OK(sink->close());
  }
  std::uint64_t longest = 0;
  for (const auto& e : std::filesystem::directory_iterator(path_)) longest = std::max(longest, e.file_size());
  std::size_t seen = 0;
  for (std::uint64_t limit = 100; limit < longest; limit += limit < 3000 ? 400 : longest / 9) {
    SCOPED_TRACE("files of " + std::to_string(limit) + " bytes");
    std::filesystem::remove_all(path_);
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const auto child = ::fork();
    if (child == 0) {
      rlimit few{limit, limit}, none{0, 0};
      (void)::setrlimit(RLIMIT_CORE, &none);
      (void)::setrlimit(RLIMIT_FSIZE, &few);
      auto sink = testing::fed(open_bp5(system_files(), path_, {}, false));
      if (sink.ok()) (void)write_all(**sink, 0, ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    std::uint64_t committed = 0;
    for (char c = 0; ::read(ends[0], &c, 1) == 1;) ++committed;
    ::close(ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    seen += committed > 0;
    auto sink = testing::fed(open_bp5(system_files(), path_, {}, true));
    ASSERT_OK(sink);
    if (committed > 0) {
      (*sink)->abandon();
      expect_file(s, frames(committed));
      sink = testing::fed(open_bp5(system_files(), path_, {}, true));
      ASSERT_OK(sink);
    }
    (*sink)->set_frames(committed);
    ASSERT_TRUE(write_all(**sink, committed, -1));
    ASSERT_OK((*sink)->close());
    expect_file(s, frames(4));
  }
  EXPECT_GT(seen, 2U);
}

TEST_F(Bp5, ADirectoryOfOthersIsNotEmptied) {
  std::filesystem::create_directories(path_);
  std::ofstream(path_ + "/notes.txt") << "mine";
  const auto refused = open_bp5(system_files(), path_, {}, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::exists);
  EXPECT_TRUE(std::filesystem::exists(path_ + "/notes.txt"));
  std::filesystem::remove_all(path_);

  Bp5Options options;
  options.owner = "a/1";
  {
    auto sink = open(0, options);
    ASSERT_OK(sink->declare(schema()));
    ASSERT_OK(put(*sink, frame(0)));
    ASSERT_OK(sink->close());
  }
  options.owner = "a.nc/2";
  for (const bool resume : {false, true}) {
    const auto other = open_bp5(system_files(), path_, options, resume);
    ASSERT_FALSE(other.ok());
    EXPECT_THAT(other.error().message, ::testing::HasSubstr("is the store of the file a, not of a.nc"));
  }
  expect_file(schema(), frames(1));
  // Another run writes the file of that name again.
  options.owner = "a/3";
  auto sink = open(1, options);
  sink->set_frames(0);
  ASSERT_OK(sink->declare(schema()));
  ASSERT_OK(put(*sink, frame(0)));
  ASSERT_OK(sink->close());
  expect_file(schema(), frames(1));
}

TEST_F(Bp5, SaysThatNobodyWritesItWhenItIsLeft) {
  const auto writes = [this] {
    const auto index = read_file(system_files(), path_ + "/md.idx");
    return index.ok() && index->size() > 39 && index->at(39) != std::byte{0};
  };
  auto sink = open();
  ASSERT_OK(sink->declare(schema()));
  ASSERT_OK(put(*sink, frame(0)));
  ASSERT_OK(sink->commit());
  EXPECT_TRUE(writes());
  ASSERT_OK(put(*sink, frame(1)));
  sink->abandon();
  EXPECT_FALSE(writes());
  expect_file(schema(), frames(1));
}

}  // namespace
}  // namespace advectio
