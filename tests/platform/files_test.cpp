#include <gtest/gtest.h>

#include <cerrno>

#include "journal/scratch.h"
#include "platform/faulty_files.h"
#include "platform/files.h"

namespace advectio {
namespace {

std::vector<std::byte> bytes(std::size_t n, int value = 7) {
  return std::vector<std::byte>(n, static_cast<std::byte>(value));
}

TEST(Files, ReadPastTheEndIsAnErrorNotShortData) {
  const Scratch scratch;
  auto file = system_files().open(scratch / "f", OpenMode::create);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->write(0, bytes(100)).ok());
  auto in = bytes(101, 0);
  EXPECT_EQ((*file)->read(0, in).error().code, Code::io);
  EXPECT_TRUE((*file)->read(50, std::span(in).first(50)).ok());
}

TEST(Files, CreateKeepsTheInodeAndCreateNewRefuses) {
  const Scratch scratch;
  ASSERT_TRUE(system_files().open(scratch / "f", OpenMode::create).ok());
  ASSERT_TRUE(system_files().link(scratch / "f", scratch / "g").ok());
  auto again = system_files().open(scratch / "f", OpenMode::create);
  ASSERT_TRUE((*again)->write(0, bytes(10)).ok());
  EXPECT_EQ(read_file(system_files(), scratch / "g")->size(), 10U);
  EXPECT_EQ(system_files().open(scratch / "f", OpenMode::create_new).error().code, Code::exists);
  EXPECT_EQ(system_files().open(scratch / "no/f", OpenMode::create).error().sys, ENOENT);
}

TEST(Files, ReplaceWholeShowsTheOldBytesOrTheNew) {
  const Scratch scratch;
  ASSERT_TRUE(replace_file(system_files(), scratch / "f", bytes(10)).ok());
  ASSERT_TRUE(replace_file(system_files(), scratch / "f", bytes(20)).ok());
  EXPECT_EQ(read_file(system_files(), scratch / "f")->size(), 20U);
  EXPECT_EQ(system_files().list(scratch.path())->size(), 1U);
}

TEST(FaultyFiles, ADiskThatFillsTakesAShortWriteAndSaysNoSpace) {
  const Scratch scratch;
  auto faults = std::make_shared<Faults>();
  FaultyFiles files(system_files(), faults);
  auto file = files.open(scratch / "f", OpenMode::create, 0644);
  faults->space = 150;
  EXPECT_TRUE((*file)->write(0, bytes(100)).ok());
  auto full = (*file)->write(100, bytes(100));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, Code::full);
  EXPECT_EQ(full.error().sys, ENOSPC);
  EXPECT_EQ(*(*file)->size(), 150U);
  faults->space = Faults::never;
  EXPECT_TRUE((*file)->write(100, bytes(100)).ok());
}

TEST(FaultyFiles, WhatCannotBeOpenedForAMomentIsMadeDurableAllTheSame) {
  const Scratch scratch;
  auto faults = std::make_shared<Faults>();
  FaultyFiles files(system_files(), faults);
  ASSERT_TRUE(files.open(scratch / "data", OpenMode::create, 0644).ok());
  faults->opens_refused = 3;
  EXPECT_TRUE(make_durable(files, scratch / "data").ok());
  EXPECT_EQ(faults->opens_refused, 0U);
}

TEST(FaultyFiles, StrikeOnlyThePathsTheyAreTold) {
  const Scratch scratch;
  auto faults = std::make_shared<Faults>();
  faults->only = "redo";
  faults->writes_until = 1;
  FaultyFiles files(system_files(), faults);
  auto other = files.open(scratch / "data", OpenMode::create, 0644);
  auto redo = files.open(scratch / "redo", OpenMode::create, 0644);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE((*other)->write(0, bytes(1)).ok());
  EXPECT_TRUE((*redo)->write(0, bytes(1)).ok());
  EXPECT_EQ((*redo)->write(0, bytes(1)).error().sys, EIO);
}

}  // namespace
}  // namespace advectio
