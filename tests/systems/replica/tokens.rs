//! An etcd that asks for a password and gives tokens that end soon.

use std::process::Command;

use tonic::Request;
use trueup::etcd::AuthenticateRequest;
use trueup::etcd::auth_client::AuthClient;
use trueup::etcd::kv_client::KvClient;
use trueup::etcd::request::key;

use super::{Held, Stage};
use crate::support::leash::{DataFolder, program};
use crate::support::proxy::Proxy;
use crate::support::{Etcd, eventually, postgres};

/// Ends when a token that was given just now has expired: then so has every older one.
async fn a_token_expires(etcd: &Etcd) {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", etcd.endpoints())).unwrap();
    let channel = channel.connect().await.unwrap();
    let login = AuthenticateRequest { name: "root".to_owned(), password: "secret".to_owned() };
    let token = AuthClient::new(channel.clone()).authenticate(login).await.unwrap().into_inner().token;
    let expired = eventually(async || {
        let mut request = Request::new(key("/tokens/a"));
        request.metadata_mut().insert("token", token.parse().unwrap());
        let answer = KvClient::new(channel.clone()).range(request).await;
        answer.is_err_and(|status| status.code() == tonic::Code::Unauthenticated)
    });
    assert!(expired.await, "a token of two seconds lives on");
}

/// Keys to sign tokens with, made by `openssl`.
fn signing(folder: &DataFolder) -> String {
    let (secret, public) = (folder.path().join("secret.pem"), folder.path().join("public.pem"));
    let openssl = |arguments: &[&str]| {
        let made = Command::new(program("openssl", &[], "openssl")).args(arguments).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let (secret, public) = (secret.to_str().unwrap(), public.to_str().unwrap());
    openssl(&["genrsa", "-out", secret, "2048"]);
    openssl(&["rsa", "-in", secret, "-pubout", "-out", public]);
    format!("--auth-token=jwt,pub-key={public},priv-key={secret},sign-method=RS256,ttl=2s")
}

/// An etcd where `root` and `carrier` may do anything, once they have signed in.
async fn signed_in(folder: &DataFolder) -> Etcd {
    let etcd = Etcd::start_with(1, &[&signing(folder)]).await;
    for command in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "carrier:secret"],
        &["user", "grant-role", "carrier", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(command);
    }
    etcd
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_outlives_its_token_in_both_directions() {
    let folder = DataFolder::new("tokens");
    let own = signed_in(&folder).await;
    let proxy = Proxy::before(&own.endpoints()).await;
    let url = format!("etcd://carrier:secret@{}/tokens/", own.endpoints());
    let mut stage = Stage::at("tokens", &url, Held::Own(Box::new(own)), Held::Shared(postgres().await)).await;
    stage.spec.etcd.endpoints = vec![proxy.address().to_owned()];
    let running = stage.started().await;

    a_token_expires(&stage.etcd).await;
    stage.sql("select etcd_set('$Pa', 'late')").await;
    stage.sql_becomes("select status, attempts from etcd_wal", "applied|1").await;
    stage.put("b", "on a watch that is older than its token").await;
    stage.sql_becomes("select count(*) from etcd", "2").await;

    a_token_expires(&stage.etcd).await;
    proxy.cut();
    stage.put("c", "on a watch that was opened again").await;
    stage.sql_becomes("select count(*) from etcd", "3").await;

    a_token_expires(&stage.etcd).await;
    proxy.cut();
    stage.sql("select etcd_set('$Pd', 'after a cut')").await;
    stage.sql_becomes("select count(*) from etcd_wal where status = 'applied'", "2").await;
    stage.live_sets_equal().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_gone_ends_the_replica_and_fails_no_write() {
    let folder = DataFolder::new("tokens");
    let own = signed_in(&folder).await;
    let url = format!("etcd://carrier:secret@{}/gone/", own.endpoints());
    let stage = Stage::at("gone", &url, Held::Own(Box::new(own)), Held::Shared(postgres().await)).await;
    let running = stage.started().await;
    stage.put("a", "seen by its watch").await;
    stage.sql_becomes("select count(*) from etcd", "1").await;
    stage.etcd.ctl(&["--user=root:secret", "user", "delete", "carrier"]);
    stage.sql("select etcd_set('$P' || n, 'v') from generate_series(1, 3) n").await;
    let error = running.fails().await;
    assert_eq!(error.kind(), trueup::error::Kind::Unauthorized, "{error:?}");
    assert!(error.remedy().contains("user and password"), "{error:?}");
    assert_eq!(stage.sql("select status, count(*) from etcd_wal group by 1").await, "pending|3");
}
