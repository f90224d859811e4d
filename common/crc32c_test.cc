#include "common/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending(32, '\0'), descending(32, '\0');
  for (int i = 0; i < 32; ++i) {
    ascending[i] = static_cast<char>(i);
    descending[i] = static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(descending), 0x113fdb5cu);
}

TEST(Crc32c, BothFormsAgreeAtEveryLengthAndAlignment) {
  std::string data(97, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 37 + 11);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t end = begin; end <= data.size(); ++end) {
      const std::string_view part = std::string_view(data).substr(begin, end - begin);
      ASSERT_EQ(Crc32c(part), internal::Crc32cPortable(part)) << begin << " to " << end;
    }
  }
}

TEST(Crc32c, Mask) {
  EXPECT_EQ(MaskCrc32c(0), 0xa282ead8u);
  EXPECT_EQ(MaskCrc32c(1), 0xa284ead8u);       // 1 rotated right by 15 is 0x20000
  EXPECT_EQ(MaskCrc32c(0x8000), 0xa282ead9u);  // and 0x8000 is 1
}

}  // namespace
}  // namespace millrace
