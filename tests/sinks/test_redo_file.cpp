// A redo file from its beginning to its end: which names there are, what is on the disk when, and what stays when the
// disk refuses something.
#include "sinks/transaction/redo_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "platform/faulty_files.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Whole = RedoFile::Whole;

/// Calls of the file system in order, with base names. Reads and writes are left out.
using Calls = std::vector<std::string>;

std::string last_of(const std::string& path) {
  const auto name = path.substr(path.find_last_of('/') + 1);
  return name.empty() ? "names" : name;
}

class NotedFile final : public File {
 public:
  NotedFile(std::unique_ptr<File> real, Calls& calls) : real_(std::move(real)), calls_(calls) {}
  Result<void> write(std::uint64_t offset, std::span<const std::byte> data) override {
    return real_->write(offset, data);
  }
  Result<void> read(std::uint64_t offset, std::span<std::byte> data) override { return real_->read(offset, data); }
  Result<std::uint64_t> size() override { return real_->size(); }
  Result<void> resize(std::uint64_t bytes) override {
    calls_.push_back("empty " + last_of(path()));
    return real_->resize(bytes);
  }
  Result<void> reserve(std::uint64_t bytes) override { return real_->reserve(bytes); }
  Result<void> sync() override {
    calls_.push_back("sync " + last_of(path()));
    return real_->sync();
  }
  [[nodiscard]] int descriptor() const noexcept override { return real_->descriptor(); }
  [[nodiscard]] const std::string& path() const noexcept override { return real_->path(); }

 private:
  std::unique_ptr<File> real_;
  Calls& calls_;
};

class NotedFiles final : public Files {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, unsigned permissions) override {
    auto file = real_.open(path, mode, permissions);
    if (!file) return file;
    if (mode == OpenMode::create) calls.push_back("create " + last_of(path));
    return std::unique_ptr<File>(std::make_unique<NotedFile>(std::move(file).value(), calls));
  }
  Result<Mapping> map(File& file, std::size_t bytes, bool writable) override {
    return real_.map(file, bytes, writable);
  }
  Result<void> make_directory(const std::string& path, unsigned p) override { return real_.make_directory(path, p); }
  Result<void> rename(const std::string& from, const std::string& to) override {
    calls.push_back("rename " + last_of(from) + " " + last_of(to));
    return real_.rename(from, to);
  }
  Result<void> link(const std::string& from, const std::string& to) override { return real_.link(from, to); }
  Result<void> remove(const std::string& path) override {
    calls.push_back("remove " + last_of(path));
    return real_.remove(path);
  }
  bool exists(const std::string& path) override { return real_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& directory) override { return real_.list(directory); }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return real_.free_bytes(path); }

  Calls calls;

 private:
  Files& real_ = system_files();
};

#define ASSERT_OK(expr)                                             \
  do {                                                              \
    const auto& ok_ = (expr);                                       \
    ASSERT_TRUE(ok_.ok()) << (ok_.ok() ? "" : ok_.error().message); \
  } while (false)

class ARedoFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "advectio-beside-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    std::ofstream(directory_ + "/data").flush();
    noted_.calls.clear();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  RedoFile redo_file(Whole whole) {
    return {faulty_, directory_ + "/redo",
            std::move(faulty_.open(directory_ + "/data", OpenMode::read_write, 0)).value(), whole};
  }
  static Result<void> put(const RedoFile& redo, const std::string& text) {
    return redo.file().write(0, std::as_bytes(std::span(text)));
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream in(directory_ + '/' + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] std::vector<std::string> beside() const {
    std::vector<std::string> names;
    for (const auto& e : std::filesystem::directory_iterator(directory_))
      if (const auto name = e.path().filename().string(); name != "data") names.push_back(name);
    return names;
  }
  [[nodiscard]] Calls calls() { return std::exchange(noted_.calls, {}); }

  std::string directory_;
  NotedFiles noted_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  FaultyFiles faulty_{noted_, faults_};
};

TEST_F(ARedoFile, HasItsNameOnceItIsDecided) {
  auto redo = redo_file(Whole::by_name);
  ASSERT_OK(redo.begin());
  ASSERT_OK(put(redo, "change"));
  EXPECT_THAT(beside(), ElementsAre("redo.part"));
  auto resumed = redo_file(Whole::by_name);
  auto there = resumed.take_up();
  ASSERT_OK(there);
  EXPECT_FALSE(*there);

  ASSERT_OK(redo.decide(false));
  EXPECT_THAT(beside(), ElementsAre("redo"));
  there = resumed.take_up();
  ASSERT_OK(there);
  ASSERT_TRUE(*there);
  std::string text(6, ' ');
  ASSERT_OK(resumed.file().read(0, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text, "change");
  ASSERT_OK(resumed.remove(false));
  EXPECT_THAT(beside(), IsEmpty());
}

TEST_F(ARedoFile, SaysByItsNameWhatTheChangeIs) {
  auto redo = redo_file(Whole::by_name);
  ASSERT_OK(redo.begin());
  ASSERT_OK(redo.decide(false, ".header"));
  EXPECT_THAT(beside(), ElementsAre("redo.header"));
  auto resumed = redo_file(Whole::by_name);
  const auto content = resumed.take_up(), header = resumed.take_up(".header");
  ASSERT_OK(content);
  EXPECT_FALSE(*content);
  ASSERT_OK(header);
  EXPECT_TRUE(*header);
  ASSERT_OK(redo.remove(false));
  EXPECT_THAT(beside(), IsEmpty());
}

TEST_F(ARedoFile, ThatIsWholeByItsContentHasItsNameFromTheBeginning) {
  auto redo = redo_file(Whole::by_content);
  ASSERT_OK(redo.begin());
  EXPECT_THAT(beside(), ElementsAre("redo"));
  auto resumed = redo_file(Whole::by_content);
  const auto there = resumed.take_up();
  ASSERT_OK(there);
  EXPECT_TRUE(*there) << "its owner looks into it";
}

TEST_F(ARedoFile, IsForgottenUnderEachName) {
  for (const auto* name : {"redo", "redo.header", "redo.part"}) std::ofstream(directory_ + '/' + name) << "old";
  const auto redo = [&] { return redo_file(Whole::by_name); };
  ASSERT_OK(redo().forget_begun());
  EXPECT_THAT(beside(), UnorderedElementsAre("redo", "redo.header"));
  ASSERT_OK(redo().forget());
  ASSERT_OK(redo().forget(".header"));
  EXPECT_THAT(beside(), IsEmpty());
}

TEST_F(ARedoFile, IsOnTheDiskBeforeItsName) {
  auto redo = redo_file(Whole::by_name);
  ASSERT_OK(redo.begin());
  ASSERT_OK(redo.decide(false));
  EXPECT_THAT(calls(), ElementsAre("create redo.part", "sync redo.part", "rename redo.part redo"));
}

TEST_F(ARedoFile, IsOnTheDiskWithItsNameWhereThePowerMayBeLost) {
  auto by_name = redo_file(Whole::by_name);
  ASSERT_OK(by_name.begin());
  ASSERT_OK(by_name.decide(true));
  EXPECT_THAT(calls(), ElementsAre("create redo.part", "sync redo.part", "rename redo.part redo", "sync names"));
  by_name.keep();
  ASSERT_OK(by_name.remove(true));
  EXPECT_THAT(calls(), ElementsAre("sync data", "remove redo", "sync names"));

  auto by_content = redo_file(Whole::by_content);
  ASSERT_OK(by_content.begin());
  ASSERT_OK(by_content.decide(true));
  EXPECT_THAT(calls(), ElementsAre("create redo", "sync redo", "sync names"));
  by_content.keep();
  // The name stays on the disk.
  ASSERT_OK(by_content.begin());
  ASSERT_OK(by_content.decide(true));
  EXPECT_THAT(calls(), ElementsAre("sync data", "empty redo", "sync redo"));
}

TEST_F(ARedoFile, WaitsForNoDiskWithoutNeed) {
  auto redo = redo_file(Whole::by_content);
  ASSERT_OK(redo.begin());
  ASSERT_OK(redo.decide(false));
  ASSERT_OK(redo.remove(false));
  ASSERT_OK(redo.remove(false));  // there is none
  EXPECT_THAT(calls(), ElementsAre("create redo", "remove redo"));
}

TEST_F(ARedoFile, ThatIsKeptIsNeitherChangedNorRemovedBeforeTheFileIsSynced) {
  auto redo = redo_file(Whole::by_content);
  ASSERT_OK(redo.begin());
  ASSERT_OK(put(redo, "change"));
  ASSERT_OK(redo.decide(true));
  redo.keep();
  faults_->only = "data";
  faults_->syncs_until = 0;
  EXPECT_FALSE(redo.begin().ok());
  EXPECT_FALSE(redo.remove(true).ok());
  EXPECT_FALSE(redo.give_up());
  EXPECT_EQ(text_of("redo"), "change");
  faults_->syncs_until = Faults::never;
  ASSERT_OK(redo.begin());
  EXPECT_EQ(text_of("redo"), "");
}

TEST_F(ARedoFile, ThatIsNotDecidedIsGivenUp) {
  for (const auto whole : {Whole::by_name, Whole::by_content}) {
    auto redo = redo_file(whole);
    EXPECT_TRUE(redo.give_up()) << "there is none";
    ASSERT_OK(redo.begin());
    EXPECT_TRUE(redo.give_up());
    EXPECT_THAT(beside(), IsEmpty());
  }
}

TEST_F(ARedoFile, ThatIsDecidedIsNotGivenUp) {
  for (const auto whole : {Whole::by_name, Whole::by_content}) {
    auto redo = redo_file(whole);
    ASSERT_OK(redo.begin());
    ASSERT_OK(redo.decide(false));
    EXPECT_FALSE(redo.give_up());
    EXPECT_THAT(beside(), ElementsAre("redo"));
    ASSERT_OK(redo.remove(false));
  }
}

/// The disk refuses to keep it, and then to let it go.
TEST_F(ARedoFile, ThatMayBeWholeAndStaysIsEmptied) {
  auto redo = redo_file(Whole::by_content);
  ASSERT_OK(redo.begin());
  ASSERT_OK(put(redo, "change and trailer"));
  redo.may_count();
  faults_->only = "redo";
  faults_->syncs_until = 0;
  EXPECT_FALSE(redo.decide(true).ok());
  faults_->keeps_names = true;
  EXPECT_TRUE(redo.give_up());
  EXPECT_THAT(beside(), ElementsAre("redo"));
  EXPECT_EQ(text_of("redo"), "");
}

/// Empty it would be taken for whole.
TEST_F(ARedoFile, ThatIsWholeByItsNameAndStaysIsNotEmptied) {
  auto redo = redo_file(Whole::by_name);
  ASSERT_OK(redo.begin());
  ASSERT_OK(put(redo, "change"));
  ASSERT_OK(redo.decide(false));
  redo.keep();
  faults_->keeps_names = true;
  EXPECT_FALSE(redo.remove(false).ok());
  EXPECT_FALSE(redo.give_up());
  EXPECT_EQ(text_of("redo"), "change");
}

TEST_F(ARedoFile, ThatWasDecidedStaysWhereItsDirectoryCannotBeSynced) {
  auto redo = redo_file(Whole::by_name);
  ASSERT_OK(redo.begin());
  faults_->syncs_until = 1;  // its own
  EXPECT_FALSE(redo.decide(true).ok());
  EXPECT_FALSE(redo.give_up());
  EXPECT_THAT(beside(), ElementsAre("redo"));
}

TEST(RedoPath, IsBesideTheFileAndShort) {
  EXPECT_EQ(default_redo_path("/out/a.nc"), "/out/.a.nc.advectio-redo");
  EXPECT_EQ(default_redo_path("/out/.a.nc.advectio-0000abcd-1"), "/out/.a.nc.advectio-0000abcd-1-redo");
  const std::string a(255, 'a'), b = std::string(254, 'a') + 'b';
  EXPECT_LT(default_redo_path("/out/" + a).size(), 120U);
  EXPECT_NE(default_redo_path("/out/" + a), default_redo_path("/out/" + b));
  EXPECT_NE(default_redo_path("/out/." + a), default_redo_path("/out/" + a));
}

}  // namespace
}  // namespace advectio
