// Two runs that write one file: the second is refused, and the first one's file stays what it is.
#include "journal/markers.h"
#include "journal/run_mark.h"
#include "server/server_fixture.h"

namespace advectio {
namespace {

class TwoRunsTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    // Another run. It needs no server to begin a dataset.
    ASSERT_TRUE(journal::Stage::make(system_files(), another_, 64 * 1024, 16, 1'000'000'000).ok());
    auto lock = journal::ProcessLock::take(another_ + "/server.lock");
    ASSERT_TRUE(lock.ok());
    its_lock_ = std::move(lock).value();
  }
  /// A program of that run, which creates a.nc. Its code: the error, or 0.
  [[nodiscard]] std::unique_ptr<Program> second(FileFormat format) const {
    return std::make_unique<Program>(another_, [this, format](Session& s) {
      auto made = s.create({out("a.nc"), format, false});
      if (made) return (void)made->release(), 0;
      return made.error().code == Code::exists ? made.error().sys : 99;
    });
  }
  static int code_of(const std::unique_ptr<Program>& program) {
    program->go();
    return program->wait();
  }
  bool is_marked() const {
    return journal::RunMark::is_on(out("a.nc")) || journal::RunMark::is_on(journal::held_name_of_new(out("a.nc")));
  }

 private:
  const std::string another_ = scratch_ / "another";
  journal::ProcessLock its_lock_;
};

TEST_F(TwoRunsTest, TheSecondIsRefusedUntilTheFileIsComplete) {
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 2, true, false); });
  const auto hdf5 = second(FileFormat::netcdf4), classic = second(FileFormat::cdf5), later = second(FileFormat::cdf5);
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  // The program has ended, and the server writes what it had said.
  ASSERT_TRUE(eventually([this] { return is_marked(); }));
  EXPECT_EQ(code_of(hdf5), EACCES);
  EXPECT_EQ(code_of(classic), EACCES);
  store_.commits_stand = false;
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_FALSE(is_marked());
  EXPECT_EQ(code_of(later), 0);
}

TEST_F(TwoRunsTest, TheSecondIsRefusedBeforeTheFirstOnesServerHasHeardOfTheFile) {
  // Before the first begins to serve, nobody but the program can have marked the file.
  Program a(run_dir(), [this](Session& s) {
    auto made = s.create({out("a.nc"), FileFormat::netcdf4, false});
    if (!made) return 1;
    const bool marked = is_marked();
    return marked && (*made)->close() && !is_marked() ? 0 : 2;
  });
  ASSERT_TRUE(journal::Stage::make(system_files(), run_dir(), 64 * 1024, 16, 1'000'000'000).ok());
  {
    const auto lock = journal::ProcessLock::take(run_dir() + "/server.lock");
    ASSERT_TRUE(lock.ok());
    a.go();
    EXPECT_EQ(a.wait(), 0);
  }
}

TEST_F(TwoRunsTest, OneRunMayCreateItsFileAgain) {
  Program a(run_dir(), [this](Session& s) {
    for (int i = 0; i < 3; ++i)
      if (const int failed = write_frames(s, out("a.nc"), 2, true, false); failed != 0) return failed;
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_FALSE(is_marked());
}

}  // namespace
}  // namespace advectio
