#!/usr/bin/env python3
"""Asks a running learner what grpcurl would: reflection, health and status, by nothing but Python's gRPC packages.

    query_service.py HOST:PORT [HEALTH_HOST:PORT]

The learner's messages are built from what reflection says about them, so this also checks that reflection is complete.
Prints a line a check; exits with 1 at the first that fails.
"""

import argparse
import sys

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SECONDS = 20  # a call's deadline
OURS = ["millrace.v1.Control", "millrace.v1.Status", "millrace.v1.Trajectory", "millrace.v1.Weights"]
STANDARD = ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"]


def check(what, holds):
    print(("ok      " if holds else "FAILED  ") + what)
    if not holds:
        sys.exit(1)


def health_of(channel, service):
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=SECONDS).status


def check_health(channel, address):
    for service in ["", *OURS]:
        serving = health_of(channel, service) == health_pb2.HealthCheckResponse.SERVING
        check(f"health at {address}: {service or 'all'} is serving", serving)
    try:
        health_of(channel, "millrace.v1.Nothing")
        check("health: a service that does not exist is not found", False)
    except grpc.RpcError as error:
        check("health: a service that does not exist is not found", error.code() == grpc.StatusCode.NOT_FOUND)


def call(channel, pool, method, answers):
    """Calls `/package.Service/Method` with an empty request, by the descriptors in `pool`; yields `answers` replies."""
    service, name = method.rsplit(".", 1)
    descriptor = pool.FindServiceByName(service).methods_by_name[name]
    request, reply = GetMessageClass(descriptor.input_type), GetMessageClass(descriptor.output_type)
    make = channel.unary_stream if answers else channel.unary_unary
    stub = make(f"/{service}/{name}", request_serializer=request.SerializeToString, response_deserializer=reply.FromString)
    result = stub(request(), timeout=SECONDS)
    if not answers:
        return [result]
    replies = [next(result) for _ in range(answers)]
    result.cancel()
    return replies


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("health", nargs="?")
    args = parser.parse_args()

    with grpc.insecure_channel(args.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = sorted(database.get_services())
        check(f"reflection lists {', '.join(services)}", set(services) >= {*OURS, *STANDARD})
        pool = DescriptorPool(database)
        for service in OURS:
            methods = pool.FindServiceByName(service).methods
            check(f"{service} has {', '.join(method.name for method in methods)}", len(methods) > 0)
        check_health(channel, args.address)

        status = call(channel, pool, "millrace.v1.Status.Get", 0)[0]
        print(json_format.MessageToJson(status, preserving_proto_field_name=True))
        check("status names its run", status.run_id != "")
        check("status has a state", status.state != "")
        watched = call(channel, pool, "millrace.v1.Status.Watch", 2)
        check("a watch tells again", watched[0].run_id == watched[1].run_id == status.run_id)

    if args.health:
        with grpc.insecure_channel(args.health) as channel:
            check_health(channel, args.health)


if __name__ == "__main__":
    main()
