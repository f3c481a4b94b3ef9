//! `linerate load` against HTTPS servers that something is wrong with.

mod common;
mod issued;
mod real;

use common::{measured, number, run};
use issued::Issued;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use real::{nginx_tls, written};

const WAYS: [[&str; 2]; 4] = [["--io", "epoll"], ["--io", "uring"], ["--way", "threads"], ["--way", "async"]];

/// What a run says that never reached a server, in one line.
fn refused(port: u16, flags: &[&str]) -> String {
    let url = format!("https://localhost:{port}/");
    let said = run(&[&["load", "-4", "-n", "4", "-c", "2"], flags, &[&url]].concat());
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.err);
    let page = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    page.split_once("could not be reached: ").map(|(_, why)| why.to_owned()).unwrap_or(page)
}

#[test]
fn each_fault_of_a_certificate_is_named() {
    let later = Issued::with("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2099, 1, 1);
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    });
    let client = Issued::with("localhost", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let nameless = Issued::with("localhost", |params| params.subject_alt_names.clear());
    for (issued, expected) in [
        (later, "the certificate is not valid yet"),
        (client, "the certificate is for another purpose"),
        (nameless, "the certificate is not for localhost: it has no names"),
    ] {
        let Some(server) = nginx_tls(&issued.certificate, &issued.key, "") else { return };
        let cacert = issued.file("cert.pem");
        for way in WAYS {
            let said = refused(server.address.port(), &[&["--cacert", &cacert], &way[..]].concat());
            assert!(said.starts_with("TLS: ") && said.contains(expected), "{way:?}: {said}");
        }
    }
    // No authority of this machine has this name.
    let own = Issued::with("localhost", |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "signed by itself alone");
    });
    let Some(server) = nginx_tls(&own.certificate, &own.key, "") else { return };
    let said = refused(server.address.port(), &[]);
    assert!(said.contains("the certificate is self-signed"), "{said}");
}

/// `openssl req -x509` makes such certificates unless told otherwise.
#[test]
fn a_self_signed_certificate_of_an_authority_is_trusted_if_it_is_given() {
    let own = Issued::with("localhost", |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let Some(server) = nginx_tls(&own.certificate, &own.key, "") else { return };
    let cacert = own.file("cert.pem");
    for way in WAYS {
        let url = format!("https://localhost:{}/", server.address.port());
        let flags = ["-4", "-n", "4", "-c", "2", "--cacert", &cacert, &url];
        let (document, _) = measured(&[&way[..], &flags].concat());
        assert_eq!(number(&document, "/requests/answered"), 4, "{way:?}: {}", document["failures"]);
    }
    let said = refused(server.address.port(), &[]);
    assert!(said.contains("the certificate is self-signed"), "{said}");
}

/// Files that are no PEM, as certificates often arrive from Windows.
#[test]
fn binary_files_are_named_and_a_byte_order_mark_is_no_trouble() {
    let own = Issued::to("localhost");
    let (der, marked) = (own.file("der"), own.file("marked"));
    std::fs::write(&der, [0x30, 0x82, 0x01, 0xff]).expect("written");
    std::fs::write(&marked, format!("\u{feff}{}", own.certificate)).expect("written");
    let call = |file: &str| run(&["load", "-n", "1", "--cacert", file, "https://localhost:1/"]);
    let said = call(&der);
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    assert!(
        said.err.contains("PEM is expected") && said.err.contains("openssl x509 -inform der"),
        "{}",
        said.err
    );
    let said = call(&marked);
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.err);
}

#[test]
fn a_missing_intermediate_is_named() {
    let authority = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params, KeyPair::generate().expect("a key"))
    };
    let (root, root_key) = authority("root");
    let (between, between_key) = authority("between");
    let root_pem = root.self_signed(&root_key).expect("a certificate").pem();
    let root = Issuer::new(root, root_key);
    let between_pem = between.signed_by(&between_key, &root).expect("a certificate").pem();
    let between = Issuer::new(between, between_key);
    let key = KeyPair::generate().expect("a key");
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    // It says where the issuer's certificate can be fetched (RFC 5280 section 4.2.2.1).
    let address = b"\x30\x16\x30\x14\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86\x08http://a";
    let oid = [1, 3, 6, 1, 5, 5, 7, 1, 1];
    leaf.custom_extensions.push(rcgen::CustomExtension::from_oid_content(&oid, address.to_vec()));
    let leaf = leaf.signed_by(&key, &between).expect("a certificate").pem();
    let dir = real::folder();
    let cacert = dir.path().join("root.pem");
    std::fs::write(&cacert, root_pem).expect("written");
    let cacert = cacert.display().to_string();
    let Some(server) = nginx_tls(&leaf, &key.serialize_pem(), "") else { return };
    let said = refused(server.address.port(), &["--cacert", &cacert]);
    assert!(said.contains("the server does not send the intermediate certificate CN=between"), "{said}");
    let whole = format!("{leaf}{between_pem}");
    let Some(server) = nginx_tls(&whole, &key.serialize_pem(), "") else { return };
    let url = format!("https://localhost:{}/", server.address.port());
    let (document, _) = measured(&["-4", "-n", "8", "--cacert", &cacert, &url]);
    assert_eq!(number(&document, "/status/200"), 8);
}

#[test]
fn no_cipher_in_common_and_a_server_that_closes() {
    let issued = Issued::to("localhost");
    let cacert = issued.file("cert.pem");
    let more = "ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;";
    let Some(server) = nginx_tls(&issued.certificate, &issued.key, more) else { return };
    let flags =
        ["--cacert", &cacert, "--tls-max", "1.2", "--ciphers", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"];
    let said = refused(server.address.port(), &flags);
    assert!(said.contains("no cipher, curve or certificate in common"), "{said}");
    let closing = common::server(|mut stream| drop(std::io::Read::read(&mut stream, &mut [0; 4096])));
    for way in WAYS {
        let said = refused(closing.port(), &[&["-k"], &way[..]].concat());
        assert!(said.contains("the peer closed the connection during the handshake"), "{way:?}: {said}");
    }
}

#[test]
fn an_encrypted_key_is_refused() {
    let issued = Issued::to("localhost");
    let Some(openssl) = real::find("openssl") else { return };
    let (cert, key, locked) = (issued.file("cert.pem"), issued.file("key.pem"), issued.file("locked.pem"));
    let args = ["pkcs8", "-topk8", "-in", &key, "-out", &locked, "-passout", "pass:secret"];
    let made = std::process::Command::new(openssl).args(args).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    let said = run(&["load", "-n", "1", "-k", "--cert", &cert, "--key", &locked, "https://127.0.0.1:9/"]);
    assert_eq!(said.code, Some(2), "{}", said.out);
    assert!(said.err.contains("encrypted"), "{}", said.err);
}

/// A server that closes without close_notify, except where it says so.
const CLOSES: &str = "import socket, ssl, threading

for name in 'certificate', 'key':
    open(name, 'w').write({'certificate': '''{certificate}''', 'key': '''{key}'''}[name])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('certificate', 'key')
ANSWERS = {
    b'/until-close': b'HTTP/1.1 200 OK\\r\\n\\r\\nhello',
    b'/notified': b'HTTP/1.1 200 OK\\r\\n\\r\\nhello',
    b'/length': b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello',
    b'/chunked': b'HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhello\\r\\n0\\r\\n\\r\\n',
    b'/nothing': b'',
    b'/refused': b'HTTP/1.1 413 Too Large\\r\\nConnection: close\\r\\nContent-Length: 3\\r\\n\\r\\nbig',
}

def serve(raw):
    try:
        # Else a short answer waits behind the tickets until they are acknowledged, and a reset discards it.
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = context.wrap_socket(raw, server_side=True)
        head = b''
        while b'\\r\\n\\r\\n' not in head:
            more = tls.recv(4096)
            if not more:
                return
            head += more
        path = head.split()[1]
        tls.sendall(ANSWERS[path])
        if path == b'/notified':
            tls.unwrap()
        # close() alone says nothing in TLS.
        tls.close()
    except OSError:
        raw.close()

listener = socket.create_server(('127.0.0.1', {port}), backlog=256)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// It, with its certificate.
fn closing() -> Option<(real::Server, Issued)> {
    let issued = Issued::to("localhost");
    let source = CLOSES.replace("{certificate}", &issued.certificate).replace("{key}", &issued.key);
    Some((written("python3", &[], "server.py", &source)?, issued))
}

/// RFC 9112 section 9.8: without close_notify, a body that lasts until the close is not known to be whole.
#[test]
fn a_cut_ends_only_bodies_that_say_where_they_end() {
    let Some((server, issued)) = closing() else { return };
    let cacert = issued.file("cert.pem");
    for way in WAYS {
        for (path, good) in
            [("/until-close", false), ("/notified", true), ("/length", true), ("/chunked", true)]
        {
            let url = format!("https://localhost:{}{path}", server.address.port());
            let flags = ["-4", "-n", "12", "-c", "2", "--per-connection", "1", "--cacert", &cacert, &url];
            let (document, _) = measured(&[&way[..], &flags].concat());
            let counts = (number(&document, "/requests/answered"), number(&document, "/failures/truncated"));
            assert_eq!(
                counts,
                if good { (12, 0) } else { (0, 12) },
                "{way:?} {path}: {}",
                document["failures"]
            );
        }
        // The requests left on an open connection: their failure is not that none could be opened.
        let url = format!("https://localhost:{}/nothing", server.address.port());
        let flags = ["-4", "-n", "12", "-c", "2", "--cacert", &cacert, &url];
        let (document, _) = measured(&[&way[..], &flags].concat());
        assert_eq!(number(&document, "/failures/closed_early"), 12, "{way:?}: {}", document["failures"]);
        assert!(
            number(&document, "/connections/closed_by_peer") >= 12,
            "{way:?}: {}",
            document["connections"]
        );
    }
}

/// A close with bytes unread resets the connection.
#[test]
fn an_answer_before_a_reset_is_read() {
    let Some((server, issued)) = closing() else { return };
    let (cacert, body) = (issued.file("cert.pem"), issued.file("body"));
    std::fs::write(&body, vec![0; 3_000_000]).expect("written");
    let body = format!("@{body}");
    for way in WAYS {
        let url = format!("https://localhost:{}/refused", server.address.port());
        let flags = ["-4", "-n", "12", "-c", "2", "--body", &body, "--cacert", &cacert, &url];
        let (document, _) = measured(&[&way[..], &flags].concat());
        assert_eq!(number(&document, "/status/413"), 12, "{way:?}: {}", document["failures"]);
    }
}
