// Who may talk to a server, and who may see what its run holds.
#include "server/server_fixture.h"

namespace advectio {
namespace {

/// The first line that the server of a run answers; empty when it hangs up.
std::string answer_to(const std::string& run_dir, const std::string& request) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", run_dir.c_str());
  std::string line;
  char c = 0;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0)
    while (::read(fd, &c, 1) == 1 && c != '\n') line += c;
  ::close(fd);
  return line;
}

TEST_F(ServerTest, WhoDoesNotShowTheSecretIsNotServed) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 1, true, false); });
  start();
  const auto secret = read_file(system_files(), run_dir() + "/secret").value();
  const std::string right(reinterpret_cast<const char*>(secret.data()), secret.size());
  EXPECT_EQ(right.size(), 32U);
  for (const auto* wrong :
       {"{\"do\":\"drain\"}\n", "{\"do\":\"drain\",\"secret\":\"\"}\n", "{\"do\":\"drain\",\"secret\":7}\n"})
    EXPECT_NE(answer_to(run_dir(), wrong).find("secret"), std::string::npos) << wrong;
  EXPECT_NE(answer_to(run_dir(), "{\"do\":\"status\",\"secret\":\"" + right + "\"}\n").find("datasets"),
            std::string::npos);
  // It is the run's: a server that is restarted knows it, and so does who has spoken to the one before.
  {
    const std::lock_guard guard(store_.mutex);
    store_.fail_commit_of = "a.nc";
  }
  a.go();
  (void)a.wait();
  stop_after_a_failure();
  start();
  EXPECT_NE(answer_to(run_dir(), "{\"do\":\"status\",\"secret\":\"" + right + "\"}\n").find("datasets"),
            std::string::npos);
}

TEST_F(ServerTest, AnotherUserIsNotHeardWhateverTheModesAre) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  // Forked before the server's threads exist: it is told the request when there is one.
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    ::close(told[1]);
    std::string asked;
    for (char c = 0; ::read(told[0], &c, 1) == 1;) asked += c;
    if (::setuid(65534) != 0) ::_exit(2);
    ::_exit(answer_to(run_dir(), asked).empty() ? 0 : 1);
  }
  ::close(told[0]);
  start();
  const auto secret = read_file(system_files(), run_dir() + "/secret").value();
  const std::string request = "{\"do\":\"drain\",\"secret\":\"" +
                              std::string(reinterpret_cast<const char*>(secret.data()), secret.size()) + "\"}\n";
  for (const auto& path : {scratch_.path(), run_dir(), run_dir() + "/socket"})
    ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  ASSERT_EQ(::write(told[1], request.data(), request.size()), static_cast<ssize_t>(request.size()));
  ::close(told[1]);
  int status = 0;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(json::parse(server_->status())["final"], false);
  ASSERT_EQ(::chmod(run_dir().c_str(), 0700), 0);
}

TEST_F(ServerTest, AllThatARunHoldsIsItsUsersAlone) {
  const auto old = ::umask(0);
  Program a(run_dir(), [this](Session& s) {
    ::umask(0);
    const int code = write_frames(s, out("a.nc"), 3, false);
    return code != 0 ? code : ::pause();
  });
  start();
  a.go();
  ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() == 3; }));
  struct stat st {};
  ASSERT_EQ(::stat(run_dir().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0700U);
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir())) {
    if (::lstat(entry.path().c_str(), &st) != 0) {
      ASSERT_EQ(errno, ENOENT) << entry.path();  // the server removes what it has written
      continue;
    }
    EXPECT_EQ(st.st_mode & 07777U, S_ISDIR(st.st_mode) ? 0700U : 0600U) << entry.path();
    ++seen;
  }
  EXPECT_GT(seen, 10U);
  ::umask(old);
}

TEST_F(ServerTest, ARunDirectoryThatOthersMayWriteOrOwnIsLeftAlone) {
  leave_uncommitted(1);
  const auto refused = [&] {
    EXPECT_EQ(journal::Stage::open(system_files(), run_dir()).error().code, Code::permission);
    Program b(run_dir(), [](Session&) { return 0; });
    b.go();
    EXPECT_EQ(b.wait(), 99);  // at once, with a word, and the program's own library does the rest
    ServerOptions o;
    o.run_dir = run_dir();
    o.recover = true;
    EXPECT_EQ(Server::open(system_files(), o, config_, sinks_of(store_), log_).error().code, Code::permission);
  };
  ASSERT_EQ(::chmod(run_dir().c_str(), 0770), 0);
  refused();
  ASSERT_EQ(::chmod(run_dir().c_str(), 0700), 0);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(run_dir().c_str(), 65534, 65534), 0);
  refused();
}

}  // namespace
}  // namespace advectio
