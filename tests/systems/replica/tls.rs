//! Certificates on both sides: theirs are checked, ours are shown, and what is wrong is said.

use trueup::etcd::request::key;
use trueup::etcd::{Client, EtcdPlace};
use trueup::postgres::PostgresPlace;

use super::process::Process;
use super::{Held, Stage};
use crate::support::certificates::{Authority, Issued};
use crate::support::postgres::query;
use crate::support::{Etcd, Postgres, etcd, postgres};

/// `cert=…&key=…`, with the names a URL gives them.
fn shown(certificate: &str, key: &str, issued: &Issued) -> String {
    format!("{certificate}={}&{key}={}", issued.certificate.display(), issued.key.display())
}

/// An etcd that wants certificates, and what follows `?` in a URL that has the right ones.
async fn locked_etcd(name: &str, authority: &Authority) -> (Stage, String) {
    let own = Etcd::start_tls(authority).await;
    let ours = shown("cert", "key", &authority.issue("client", "DNS:client"));
    let good = format!("tls={}&{ours}", authority.file().display());
    let url = format!("etcd://{}/{name}/?{good}", own.endpoints());
    (Stage::at(name, &url, Held::Own(Box::new(own)), Held::Shared(postgres().await)).await, good)
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_certificates_is_mirrored_both_ways() {
    let authority = Authority::new();
    let (stage, good) = locked_etcd("mtls", &authority).await;
    let running = stage.started().await;
    stage.put("a", "1").await;
    stage.sql_becomes("select value from etcd_get('$Pa')", "1").await;
    stage.sql("select etcd_set('$Pb', '2')").await;
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    running.stop().await;
    // Another name for the host, and the one its certificate has.
    let elsewhere = stage.etcd.endpoints().replace("127.0.0.1", "localhost");
    let url = format!("etcd://{elsewhere}/mtls/?{good}&server_name=127.0.0.1");
    let client = Client::new(&EtcdPlace::parse(&url).unwrap(), None).unwrap();
    assert_eq!(client.range(key("/mtls/b")).await.unwrap().kvs.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_certificates_that_do_not_fit_ends_with_5_or_6_and_a_remedy() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (stage, good) = locked_etcd("mtls-bad", &authority).await;
    let (trusted, untrusted) = (authority.file(), stranger.file());
    let (trusted, untrusted) = (trusted.display(), untrusted.display());
    let ours = shown("cert", "key", &authority.issue("other-client", "DNS:client"));
    let foreign = shown("cert", "key", &stranger.issue("client", "DNS:client"));
    let cases = [
        ("a server of another authority", "127.0.0.1", format!("tls={untrusted}&{ours}"), 5, "Check `tls=`"),
        ("a name that the certificate lacks", "localhost", good, 5, "the `server_name`"),
        ("no client certificate", "127.0.0.1", format!("tls={trusted}"), 6, "`cert=` and `key=`"),
        (
            "a foreign client certificate",
            "127.0.0.1",
            format!("tls={trusted}&{foreign}"),
            6,
            "`cert=` and `key=`",
        ),
        ("no such file", "127.0.0.1", "tls=/no/such.pem".to_owned(), 2, "PEM files"),
    ];
    for (what, host, query, code, remedy) in cases {
        let endpoints = stage.etcd.endpoints().replace("127.0.0.1", host);
        let url = format!("etcd://{endpoints}/mtls-bad/?{query}");
        let (ended, said) = Process::start_with(&url, &stage.dsn, "mtls-bad").ends();
        assert_eq!(ended, code, "{what}: {said}");
        assert!(said.contains(remedy), "{what}: {said}");
    }
}

/// A PostgreSQL with a certificate, and a user who needs one.
async fn locked_postgres(name: &str, authority: &Authority) -> Stage {
    let own = Held::Own(Box::new(Postgres::start_tls(authority).await));
    let stage = Stage::on(name, Held::Shared(etcd().await), own).await;
    query(&stage.dsn, "create role carrier superuser login");
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_with_certificates_is_mirrored_both_ways() {
    let authority = Authority::new();
    let mut stage = locked_postgres("pg-mtls", &authority).await;
    let ours = shown("sslcert", "sslkey", &authority.issue("carrier", "DNS:client"));
    let dsn = stage.dsn.replace("postgres@", "carrier@");
    let dsn = format!("{dsn}?sslmode=verify-full&sslrootcert={}&{ours}", authority.file().display());
    stage.spec.postgres = PostgresPlace::parse(&dsn).unwrap();
    let running = stage.started().await;
    stage.put("a", "1").await;
    stage.sql_becomes("select value from etcd_get('$Pa')", "1").await;
    stage.sql("select etcd_set('$Pb', '2')").await;
    stage.sql_becomes("select status from etcd_wal", "applied").await;
    let plain = "select count(*) filter (where s.ssl) > 0, count(*) filter (where not s.ssl)
                 from pg_stat_ssl s join pg_stat_activity a using (pid) where a.usename = 'carrier'";
    assert_eq!(stage.sql(plain).await, "t|0");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_with_certificates_that_do_not_fit_ends_with_5_or_6_and_a_remedy() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let stage = locked_postgres("pg-mtls-bad", &authority).await;
    let roots =
        |authority: &Authority| format!("sslmode=verify-full&sslrootcert={}", authority.file().display());
    let (trusted, untrusted) = (roots(&authority), roots(&stranger));
    let foreign = shown("sslcert", "sslkey", &stranger.issue("carrier", "DNS:client"));
    let other = shown("sslcert", "sslkey", &authority.issue("somebody", "DNS:client"));
    let cases = [
        ("a server of another authority", "postgres@127.0.0.1", untrusted, 5, "`sslrootcert`"),
        ("a name that the certificate lacks", "postgres@localhost", trusted.clone(), 5, "`sslrootcert`"),
        ("no client certificate", "carrier@127.0.0.1", trusted.clone(), 6, "`sslcert` and `sslkey`"),
        ("a foreign one", "carrier@127.0.0.1", format!("{trusted}&{foreign}"), 6, "`sslcert` and `sslkey`"),
        ("somebody else's", "carrier@127.0.0.1", format!("{trusted}&{other}"), 6, "`sslcert`"),
        ("no such file", "postgres@127.0.0.1", "sslrootcert=/no/such.pem".to_owned(), 2, "PEM files"),
    ];
    for (what, at, query, code, remedy) in cases {
        let dsn = format!("{}?{query}", stage.dsn.replace("postgres@127.0.0.1", at));
        let url = format!("etcd://{}/pg-mtls-bad/", stage.etcd.endpoints());
        let (ended, said) = Process::start_with(&url, &dsn, "pg-mtls-bad").ends();
        assert_eq!(ended, code, "{what}: {said}");
        assert!(said.contains(remedy), "{what}: {said}");
    }
}
