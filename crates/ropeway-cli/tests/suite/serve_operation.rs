//! A gateway that is operated by others: TLS, a service manager, and a load balancer.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};

use crate::process_marker::signal;
use crate::serve::{PATIENCE, Serving, entry, json_of};
use crate::temp_home::TempHome;

/// A self-signed certificate and its key in PEM format.
struct Certificate {
    der: Vec<u8>,
    pem: String,
    key: String,
}

impl Certificate {
    fn new(change: impl FnOnce(&mut rcgen::CertificateParams)) -> Self {
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("names");
        change(&mut parameters);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let der = certificate.der().to_vec();
        Self { pem: pem("CERTIFICATE", &der), key: pem("PRIVATE KEY", &key.serialize_der()), der }
    }

    fn write(&self, temp_home: &TempHome) {
        temp_home.write("gateway.pem", &self.pem);
        temp_home.write("gateway.key", &self.key);
    }
}

/// Encodes bytes in PEM format.
fn pem(label: &str, bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |group: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | group.get(at).map_or(0, |byte| usize::from(*byte)));
        let digit = |at: usize| if at > group.len() { '=' } else { char::from(DIGITS[bits >> (18 - 6 * at) & 63]) };
        (0..4).map(digit).collect::<String>()
    };
    let text: Vec<String> = bytes.chunks(48).map(|line| line.chunks(3).map(encode).collect()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", text.join("\n"))
}

/// Accepts every certificate: the tests compare it themselves.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Sends a request over TLS. Returns the certificate of the gateway and the response.
fn get(address: &str, path: &str) -> (Vec<u8>, String) {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    tls.write_all(request.as_bytes()).expect("a request");
    let mut text = Vec::new();
    // The gateway may close the connection without a TLS alert.
    let _ = tls.read_to_end(&mut text);
    let certificate = connection.peer_certificates().expect("a certificate")[0].to_vec();
    (certificate, String::from_utf8(text).expect("UTF-8"))
}

fn tls_address(serving: &Serving) -> &str {
    serving.url.strip_prefix("https://").and_then(|rest| rest.split_once('/')).expect("a URL").0
}

fn configured(gateway: Value) -> TempHome {
    let temp_home = TempHome::new();
    temp_home.write("ropeway.yaml", &json!({"servers": [entry("demo")], "gateway": gateway}).to_string());
    temp_home
}

#[test]
fn https_is_served_and_a_new_certificate_is_used_without_a_restart() {
    let temp_home = configured(json!({"tls": {"cert": "gateway.pem", "key": "gateway.key"}}));
    let (first, second) = (Certificate::new(|_| ()), Certificate::new(|_| ()));
    first.write(&temp_home);
    let serving = Serving::in_place(&temp_home, &[]);
    let address = tls_address(&serving);
    let (certificate, response) = get(address, "/health");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(certificate == first.der);

    // A client without TLS, and one that sends nothing, do not delay others.
    let _silent = TcpStream::connect(address).expect("a connection");
    TcpStream::connect(address).expect("a connection").write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a request");

    second.write(&temp_home);
    let started = Instant::now();
    while get(address, "/health").0 != second.der {
        assert!(started.elapsed() < PATIENCE, "the new certificate is not used");
        std::thread::sleep(Duration::from_millis(200));
    }

    temp_home.write("gateway.pem", "not a certificate");
    // Longer than the time between two looks at the files.
    std::thread::sleep(Duration::from_secs(6));
    assert!(get(address, "/health").0 == second.der);
    let run = serving.end().expect(0);
    let words = "certificate not reloaded, using the previous one: `";
    assert!(run.stderr.contains(words) && run.stderr.contains("contains no certificate in PEM"), "{}", run.stderr);
}

#[test]
fn an_unusable_certificate_is_refused_at_the_start() {
    let temp_home = configured(json!({"tls": {"cert": "gateway.pem", "key": "gateway.key"}}));
    let run = temp_home.run("serve --listen 127.0.0.1:0").expect(2);
    assert!(
        run.stderr.contains("could not load the certificate") && run.stderr.contains("gateway.pem"),
        "{}",
        run.stderr
    );
    let (one, other) = (Certificate::new(|_| ()), Certificate::new(|_| ()));
    one.write(&temp_home);
    temp_home.write("gateway.key", &other.key);
    let run = temp_home.run("serve --listen 127.0.0.1:0").expect(2);
    assert!(run.stderr.contains("cannot be used with its certificate"), "{}", run.stderr);
    // Only one of the files.
    temp_home.write("ropeway.yaml", &json!({"gateway": {"tls": {"cert": "gateway.pem"}}}).to_string());
    let run = temp_home.run("serve --listen 127.0.0.1:0").expect(2);
    assert!(run.stderr.contains("key"), "{}", run.stderr);
}

#[test]
fn an_expired_certificate_is_reported() {
    let temp_home = configured(json!({"tls": {"cert": "gateway.pem", "key": "gateway.key"}}));
    Certificate::new(|parameters| parameters.not_after = rcgen::date_time_ymd(2020, 1, 1)).write(&temp_home);
    let serving = Serving::in_place(&temp_home, &[]);
    get(tls_address(&serving), "/health");
    let run = serving.end().expect(0);
    assert!(run.stderr.contains("gateway.pem` has expired"), "{}", run.stderr);
}

#[test]
fn the_service_manager_learns_when_the_gateway_is_ready_and_when_it_ends() {
    let temp_home = configured(json!({}));
    let path = temp_home.path().join("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let received = || {
        let mut message = [0; 4096];
        let length = manager.recv(&mut message).expect("a message");
        String::from_utf8(message[..length].to_vec()).expect("UTF-8")
    };
    let ropeway = temp_home.ropeway(&["serve", "--listen", "127.0.0.1:0", "--json"]);
    let serving = Serving::start(ropeway.with(|command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    }));
    assert_eq!(received(), format!("READY=1\nSTATUS=listening on {}", serving.url));
    assert_eq!([received(), received()], ["WATCHDOG=1", "WATCHDOG=1"]);
    signal("TERM", serving.running.child.id());
    let mut last = received();
    while last == "WATCHDOG=1" {
        last = received();
    }
    assert_eq!(last, "STOPPING=1\nSTATUS=draining");
    serving.running.end().expect(0);
}

#[test]
fn a_gateway_with_an_unusable_certificate_is_never_reported_as_ready() {
    let temp_home = configured(json!({"tls": {"cert": "gateway.pem", "key": "gateway.key"}}));
    let path = temp_home.path().join("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_nonblocking(true).expect("a socket");
    let ropeway = temp_home.ropeway(&["serve", "--listen", "127.0.0.1:0"]);
    let ropeway = ropeway.with(|command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    ropeway.run().expect(2);
    let nothing = manager.recv(&mut [0; 64]).expect_err("no message");
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn clients_are_served_during_the_drain_delay() {
    let temp_home = configured(json!({"drain": {"delay": "60s"}}));
    let serving = Serving::in_place(&temp_home, &[]);
    serving.tools();
    let ready = || {
        let mut stream = TcpStream::connect(serving.address()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request");
        let mut text = String::new();
        // Without `Connection: close`, the gateway keeps the connection open unless it drains.
        stream.read_to_string(&mut text).expect("a response that ends");
        text
    };
    signal("TERM", serving.running.child.id());
    let started = Instant::now();
    // A request may overtake the signal.
    let mut response = ready();
    while response.starts_with("HTTP/1.1 200") && started.elapsed() < PATIENCE {
        response = ready();
    }
    assert!(started.elapsed() < Duration::from_secs(60), "the connection was closed after the delay only");
    assert!(response.starts_with("HTTP/1.1 503") && response.contains("draining"), "{response}");
    let answer = json_of(serving.call("calculate", json!({"expression": "6*7"})));
    assert_eq!(answer["result"]["content"][0]["text"], "42", "{answer}");
    // A second signal does not wait.
    signal("TERM", serving.running.child.id());
    serving.running.end().expect(130);
}

#[test]
fn keys_are_read_from_the_file_that_a_variable_names() {
    let temp_home = configured(json!({}));
    temp_home.write("keys", &format!("{}\n", "ab".repeat(32)));
    std::process::Command::new("chmod").args(["600"]).arg(temp_home.path().join("keys")).status().expect("chmod");
    let ropeway = temp_home.ropeway(&["serve", "--listen", "127.0.0.1:0", "--json"]);
    let path = temp_home.path().join("keys");
    Serving::start(ropeway.with(|command| {
        command.env("ROPEWAY_GATEWAY_KEYS_FILE", path);
    }))
    .end()
    .expect(0);
    assert!(!temp_home.path().join(".local/state/ropeway/gateway/keys").exists());
}
