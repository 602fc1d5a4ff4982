#include "sinks/transaction/redo_file.h"

#include <utility>

namespace advectio {

Result<void> RedoFile::begin() {
  if (state_ == State::kept) {
    ADVECTIO_TRY(changed_->sync());
    ADVECTIO_TRY(redo_->resize(0));
    state_ = State::begun;
  }
  if (redo_) return {};
  name_ = whole_ == Whole::by_name ? path_ + ".part" : path_;
  auto made = files_.open(name_, OpenMode::create, 0600);
  if (!made) return std::move(made).error();
  redo_ = std::move(made).value();
  state_ = State::begun;
  named_ = false;
  return {};
}

Result<void> RedoFile::decide(bool ordered, const std::string& kind) {
  // The disk may have the name before what it is given to.
  if (ordered || whole_ == Whole::by_name) ADVECTIO_TRY(redo_->sync());
  if (whole_ == Whole::by_name) {
    ADVECTIO_TRY(files_.rename(name_, path_ + kind));
    name_ = path_ + kind;
    state_ = State::decided;
  }
  if (ordered && !named_) {
    ADVECTIO_TRY(make_names_durable(files_, directory_of(path_)));
    named_ = true;
  }
  state_ = State::decided;
  return {};
}

Result<bool> RedoFile::take_up(const std::string& kind) {
  const auto name = path_ + kind;
  if (!files_.exists(name)) return false;
  auto there = files_.open(name, OpenMode::read);
  if (!there) return std::move(there).error();
  redo_ = std::move(there).value();
  name_ = name;
  state_ = State::decided;
  return true;
}

Result<void> RedoFile::remove(bool ordered) {
  if (!redo_) return {};
  if (state_ == State::kept) {
    ADVECTIO_TRY(changed_->sync());
    // An empty one would count where only the name does.
    state_ = whole_ == Whole::by_content ? State::counts : State::decided;
  }
  ADVECTIO_TRY(files_.remove(name_));
  redo_.reset();
  state_ = State::none;
  return ordered ? make_names_durable(files_, directory_of(path_)) : Result<void>{};
}

bool RedoFile::give_up() noexcept {
  if (state_ == State::decided) return false;
  if (remove(false)) return true;
  return state_ != State::kept && (state_ != State::counts || redo_->resize(0));
}

}  // namespace advectio
