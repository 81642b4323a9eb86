"""Writes events.tfevents with TensorBoard's own messages and record writer: what the event writer is compared with, byte for byte.

Run in this folder: python events.py
"""

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

TIME = 1700000000.5
VALUES = [-1.0, -0.001, 1e-9, 0.5, 0.5, 2.0]


def limits():
    positive, value = [], 1e-12
    while value < 1e20:
        positive.append(value)
        value *= 1.1
    return [-x for x in reversed(positive)] + [0.0] + positive


def histogram():
    edges = limits()
    counts = [0.0] * len(edges)
    for value in VALUES:
        counts[next(i for i, edge in enumerate(edges) if value < edge)] += 1
    last = max(i for i, n in enumerate(counts) if n)
    kept = [i for i in range(last + 1) if counts[i] or counts[i + 1]]
    return summary_pb2.HistogramProto(
        min=min(VALUES), max=max(VALUES), num=len(VALUES), sum=sum(VALUES), sum_squares=sum(x * x for x in VALUES),
        bucket_limit=[edges[i] for i in kept], bucket=[counts[i] for i in kept])


def text(value):
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    return tensor_pb2.TensorProto(dtype=7, tensor_shape=shape, string_val=[value.encode()])


plugin = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
summaries = [
    summary_pb2.Summary.Value(tag="train/loss", simple_value=0.5),
    summary_pb2.Summary.Value(tag="weights/layers.0.weight", histo=histogram()),
    summary_pb2.Summary.Value(tag="note", tensor=text("*well begun*"), metadata=plugin),
]
events = [event_pb2.Event(wall_time=TIME, file_version="brain.Event:2")]
events += [event_pb2.Event(wall_time=TIME, step=300, summary=summary_pb2.Summary(value=[value])) for value in summaries]
events += [event_pb2.Event(wall_time=TIME, step=301, session_log=event_pb2.SessionLog(status=1))]
with open("events.tfevents", "wb") as file:
    writer = RecordWriter(file)
    for event in events:
        writer.write(event.SerializeToString(deterministic=True))
