"""Exchanges over plain sockets: a request leaves in one piece, and an answer is read however large it is."""

import socket
import threading

from hourwheel.client.transport.connections import Connections
from hourwheel.client.transport.endpoint import Endpoint

BODY = bytes(range(256)) * 12_000  # more than one call reads


def test_a_request_leaves_in_one_piece_and_a_large_answer_is_read_whole() -> None:
    pieces: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            for _ in range(2):
                pieces.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        connections = Connections(Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}"), timeout_seconds=60)
        replies = [connections.exchange("POST", "/v1/x", b"sent", {"accept": "text/plain"}) for _ in range(2)]
        connections.close()
        server.join()
    assert [reply.body for reply in replies] == [BODY, BODY]
    assert [piece.endswith(b"content-length: 4\r\n\r\nsent") for piece in pieces] == [True, True]
