//! Requests that mean harm, and those that are merely wrong: each gets a sentence, and the server
//! stays up.

use super::{default_subject, get, post, raw, request, serve};
use serde_json::json;
use std::net::SocketAddr;

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn is_up(address: SocketAddr) {
    let body = json!({ "expression": "x^2", "values": { "x": 3 } });
    let tape = post(address, "/api/expression", &body).json();
    assert_eq!(tape["sweep"]["gradient"][0]["value"]["data"], 6.0);
}

#[test]
fn only_its_own_page_may_ask() {
    let address = serve(default_subject());
    let port = address.port();
    let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    for host in &own {
        let origin = format!("http://{host}");
        let head = [("Host", &host[..]), ("Origin", &origin), ("Sec-Fetch-Site", "same-origin")];
        assert_eq!(request(address, "GET", "/api/start", &head, b"").status, 200);
    }
    let foreign = [
        ("Host", format!("evil.example:{port}")),
        ("Host", "127.0.0.1".to_string()),
        ("Host", format!("127.0.0.1.evil.example:{port}")),
        ("Origin", "http://evil.example".to_string()),
        ("Origin", "null".to_string()),
        ("Origin", format!("https://127.0.0.1:{port}")),
        ("Origin", "http://127.0.0.1:1".to_string()),
        ("Sec-Fetch-Site", "cross-site".to_string()),
        ("Sec-Fetch-Site", "same-site".to_string()),
    ];
    for (name, value) in &foreign {
        for path in ["/", "/api/start"] {
            let reply = request(address, "GET", path, &[(name, value)], b"");
            assert_eq!(reply.problem(), (403, "refused".into()), "{name}: {value}");
        }
    }
    // A link of another site opens the page, and no answer.
    let link = [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "document"),
    ];
    assert_eq!(request(address, "GET", "/", &link, b"").status, 200);
    for path in ["/api/start", "/api/run", "/nothing"] {
        let reply = request(address, "GET", path, &link, b"");
        assert_eq!(reply.problem(), (403, "refused".into()), "{path}");
    }
    is_up(address);
}

#[test]
fn every_answer_carries_the_policy() {
    let address = serve(default_subject());
    for path in ["/", "/app.js", "/app.css", "/api/start", "/nothing"] {
        let head = get(address, path).head;
        let line = |line: &str| assert!(head.lines().any(|one| one == line), "{line}: {head}");
        line(
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
             img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
        );
        line("x-content-type-options: nosniff");
        line("x-frame-options: deny");
        line("referrer-policy: no-referrer");
        line("cross-origin-resource-policy: same-origin");
        line("cross-origin-opener-policy: same-origin");
        line("cache-control: no-store");
        assert!(!head.contains("access-control-allow-origin"));
    }
    let page = get(address, "/");
    assert!(page.status == 200 && page.head.contains("content-type: text/html"));
    let zipped = request(address, "GET", "/app.js", &[("Accept-Encoding", "gzip, br")], b"");
    assert!(
        zipped.head.contains("content-encoding: gzip") && zipped.body.starts_with(&[0x1f, 0x8b])
    );
}

#[test]
fn wrong_methods_paths_types_and_bodies() {
    let address = serve(default_subject());
    for path in
        ["/nothing", "/api", "/api/", "/..", "/../Cargo.toml", "/%2e%2e/Cargo.toml", "//etc/passwd"]
    {
        assert_eq!(get(address, path).problem(), (404, "request".into()), "{path}");
    }
    for (method, path, allowed) in [
        ("GET", "/api/expression", "post"),
        ("DELETE", "/api/expression", "post"),
        ("POST", "/api/start", "get"),
        ("PUT", "/", "get"),
        ("OPTIONS", "/api/op", "post"),
    ] {
        let reply = request(address, method, path, &[JSON], b"{}");
        assert_eq!(reply.problem(), (405, "request".into()), "{method} {path}");
        assert!(reply.head.contains(&format!("allow: {allowed}")), "{}", reply.head);
    }
    for path in ["/api/recording", "/api/run"] {
        assert_eq!(get(address, path).problem(), (404, "request".into()));
    }
    let typed = |kind: &str| {
        let body = br#"{"expression":"x"}"#;
        request(address, "POST", "/api/expression", &[("Content-Type", kind)], body)
    };
    assert_eq!(typed("text/plain").problem(), (415, "request".into()));
    assert_eq!(typed("application/json; charset=utf-8").status, 200);
    let sent = |body: &[u8]| request(address, "POST", "/api/expression", &[JSON], body);
    for body in
        ["", "{", "[]", "7", "null", "{\"expression\":7}", "{}", "\u{0}", "{\"expression\":"]
    {
        assert_eq!(sent(body.as_bytes()).problem(), (400, "request".into()), "{body}");
    }
    assert_eq!(sent(&[0xff, 0xfe]).problem(), (400, "request".into()));
    // As long as may be, and one byte more.
    let mut longest = br#"{"expression":"x"}"#.to_vec();
    longest.resize(65_536, b' ');
    assert_eq!(sent(&longest).status, 200);
    longest.push(b' ');
    assert_eq!(sent(&longest).problem(), (413, "request".into()));
    let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let deep = format!(r#"{{"expression":"x","values":{{"x":{deep}}}}}"#);
    assert_eq!(sent(deep.as_bytes()).problem(), (400, "request".into()));
    is_up(address);
}

#[test]
fn bad_and_oversized_expressions() {
    let address = serve(default_subject());
    let ask = |text: &str, values: serde_json::Value| {
        post(address, "/api/expression", &json!({ "expression": text, "values": values }))
    };
    for text in ["", "x +", "foo(x)", "x[", "3", "x < 1", "a = x; a = x; a", "sin", "(((", "x ~ y"]
    {
        let reply = ask(text, json!({ "x": 1 }));
        assert_eq!(reply.problem(), (400, "expression".into()), "{text}");
    }
    let place = ask("x + ?", json!({ "x": 1 })).json();
    assert_eq!(place["error"]["span"], json!([4, 5]));
    let long = |n: usize| vec!["x"; n].join("+");
    assert_eq!(ask(&long(9000), json!({ "x": 1 })).problem(), (400, "limit".into()));
    assert_eq!(ask(&long(3000), json!({ "x": 1 })).problem(), (400, "expression".into()));
    let ones = vec![1; 4000];
    // 4000 × 4000 elements, and by several axes more than any machine has.
    for text in ["sum(outer(v, v))", "sum(outer(v, flatten(outer(v, v))))"] {
        let reply = ask(text, json!({ "v": ones }));
        assert_eq!(reply.problem(), (400, "expression".into()), "{text}");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("4096 elements"));
    }
    for values in [
        json!({ "x": [[1, 2], [3]] }),
        json!({ "x": [] }),
        json!({ "x": {} }),
        json!({ "x": true }),
        json!({ "x": [1, "a"] }),
        json!(7),
    ] {
        assert_eq!(ask("sum(x)", values.clone()).status, 400, "{values}");
    }
    assert_eq!(ask("x", json!({ "x": vec![1; 5000] })).problem(), (400, "limit".into()));
    for (path, body) in [
        ("/api/op", json!({ "expression": "x^2", "node": 99 })),
        ("/api/op", json!({ "expression": "x^2", "node": 1, "tangents": [1, 2] })),
        ("/api/cost", json!({ "points": [[1025, 1]] })),
        ("/api/cost", json!({ "points": [[1, 1025]] })),
        ("/api/cost", json!({ "points": [[0, 1]] })),
        ("/api/cost", json!({ "points": vec![[1, 1]; 33] })),
        ("/api/cost", json!({})),
        ("/api/memory", json!({ "layers": 129 })),
        ("/api/memory", json!({ "width": 257 })),
        ("/api/memory", json!({ "batch": 257 })),
        ("/api/memory", json!({ "segment": 0 })),
        ("/api/memory", json!({ "layers": 4, "segment": 5 })),
        ("/api/memory", json!({ "budget": -1 })),
        ("/api/preset", json!({ "id": "none" })),
        ("/api/program", json!({ "model": "none" })),
    ] {
        assert_eq!(post(address, path, &body).problem().0, 400, "{path} {body}");
    }
    is_up(address);
}

#[test]
fn no_bytes_bring_it_down() {
    let address = serve(default_subject());
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    for length in [0usize, 1, 10, 1000, 100_000] {
        let noise: Vec<u8> = (0..length).map(|_| next()).collect();
        // Sent and given up, as the server may wait for more.
        let stream = std::net::TcpStream::connect(address).expect("the server is up");
        let _ = std::io::Write::write_all(&mut &stream, &noise);
        drop(stream);
    }
    let reply = raw(address, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(String::from_utf8_lossy(&reply).contains("403"), "a request names its host");
    let reply = raw(address, b"nonsense\r\n\r\n");
    assert!(String::from_utf8_lossy(&reply).starts_with("HTTP/1.1 400"));
    // A body that is announced and never sent.
    let half = std::net::TcpStream::connect(address).expect("the server is up");
    let head = format!(
        "POST /api/expression HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    std::io::Write::write_all(&mut &half, head.as_bytes()).expect("sent");
    is_up(address);
    drop(half);
    // Many at once: each gets an answer, or is told that there are too many.
    let asked: Vec<_> = (0..64)
        .map(|_| {
            std::thread::spawn(move || {
                let body = json!({ "expression": "sum(softmax(W @ x))",
                    "values": { "W": [[1, 2], [3, 4]], "x": [1, 2] } });
                post(address, "/api/expression", &body).status
            })
        })
        .collect();
    let statuses: Vec<u16> = asked.into_iter().map(|t| t.join().expect("a status")).collect();
    assert!(statuses.iter().all(|s| *s == 200 || *s == 503), "{statuses:?}");
    assert!(statuses.contains(&200));
    is_up(address);
}
