#include "common/rpc/status_codec.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Gives every field of the message another value, lists one element.
void FillAll(Message& message, int& next) {
  const auto* reflection = message.GetReflection();
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    ++next;
    if (field->is_repeated()) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        FillAll(*reflection->AddMessage(&message, field), next);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reflection->AddString(&message, field, std::to_string(next));
      } else {
        reflection->AddUInt64(&message, field, static_cast<uint64_t>(next));
      }
      continue;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        reflection->SetString(&message, field, std::to_string(next));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->SetDouble(&message, field, next + 0.5);
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        reflection->SetUInt32(&message, field, static_cast<uint32_t>(next));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection->SetUInt64(&message, field, static_cast<uint64_t>(next));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(&message, field, true);
        break;
      default:
        ADD_FAILURE() << field->full_name() << " has a type that this test does not fill";
    }
  }
}

TEST(StatusCodec, EveryFieldOfTheSchemaTravels) {
  v1::RunStatus filled, back;
  int next = 0;
  FillAll(filled, next);
  ToProto(FromProto(filled), back);
  EXPECT_EQ(back.DebugString(), filled.DebugString());
}

TEST(StatusCodec, WhatIsNotKnownStaysUnknown) {
  v1::RunStatus message;
  ToProto(RunStatus{}, message);
  EXPECT_FALSE(message.has_return_mean());
  const RunStatus back = FromProto(message);
  EXPECT_TRUE(std::isnan(back.return_mean));
  EXPECT_TRUE(std::isnan(back.checkpoint_age_seconds));
  EXPECT_EQ(back.learning_rate, 0);
}

}  // namespace
}  // namespace millrace
