//! Something in front of a bucket answers in its place: a login page, a proxy, half a server. None of it is taken for
//! an empty bucket, a missing object or a deletion.

use trueup::clock::SystemClock;
use trueup::error::Kind;
use trueup::secret::Secret;
use trueup::store::objects::{Bucket, Objects};
use trueup::store::{Access, Item, Outcome, StoreExt, What};

use crate::support::http::{Reply, Request, Server};

const NO_KEY: &str = "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>";
const PAGE: &str = "<!DOCTYPE html><html><body>Please log in</body></html>";

fn listed(keys: &[&str]) -> String {
    let line = |key: &&str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;1&quot;</ETag><Size>1</Size></Contents>"
        )
    };
    let (count, lines) = (keys.len(), keys.iter().map(line).collect::<String>());
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>{count}</KeyCount>\
         {lines}</ListBucketResult>"
    )
}

fn is_listing(request: &Request) -> bool {
    request.path.contains("list-type=2")
}

fn object(request: &Request) -> Reply {
    let modified = "Wed, 01 Jan 2025 00:00:00 GMT";
    let reply = Reply::ok("x").header("ETag", "\"1\"").header("Last-Modified", modified);
    if request.method == "HEAD" { reply.body("") } else { reply }
}

/// A bucket with the keys a and b, read and written by nobody else.
async fn bucket(access: Access) -> (Server, Objects) {
    let server = Server::start(|request| match request.method.as_str() {
        _ if is_listing(request) => Reply::ok(listed(&["a", "b"])),
        // It honours every condition.
        "PUT" => Reply::status(412).body("<Error><Code>PreconditionFailed</Code></Error>"),
        "POST" => Reply::ok("<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>"),
        _ => object(request),
    });
    let to = Bucket {
        bucket: "bucket".into(),
        endpoint: Some(server.url("")),
        region: Some("us-east-1".into()),
        access_key: Some(Secret::new("test")),
        secret_key: Some(Secret::new("test")),
        ..Bucket::default()
    };
    let objects = Objects::connect(&to, access, &*SystemClock::new()).await.unwrap();
    (server, objects)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_no_listing_is_not_an_empty_bucket() {
    let (server, store) = bucket(Access::Read).await;
    assert_eq!(store.list_all("", What::Values).await.unwrap().len(), 2);
    let error = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>x</Message></Error>";
    let cut = listed(&["a"]).replace(">false<", ">true<");
    let elsewhere = listed(&["a"]).replace("<Key>", "<Key>other/");
    for (reply, says) in [
        (Reply::ok(error), "the server says InternalError: x"),
        (Reply::ok(error.replace("InternalError", "AccessDenied")), "AccessDenied"),
        (Reply::ok(PAGE), "the server answered 200 with <html> instead of a listing"),
        (Reply::ok(""), "200 with something that is no XML instead of a listing"),
        (Reply::ok("<ListBucketResult/>"), "does not say whether it is whole"),
        (Reply::ok(listed(&[])).coded(206), "206 with <ListBucketResult> instead of a listing"),
        (Reply::status(204), "204 with something that is no XML"),
        (Reply::ok(cut), "goes on, and does not say where"),
        (Reply::ok(listed(&["a"]).replace("Count>1", "Count>2")), "says that it has 2"),
        (Reply::ok(&listed(&["a"])[..200]), "ends in the middle"),
        (Reply::ok(elsewhere), "does not begin with"),
        (Reply::ok(listed(&["b", "a"])), "not in the order of the keys"),
        (Reply::status(404).body(PAGE), "404 with <html> instead of a listing"),
        (Reply::endless(), "does not end"),
    ] {
        server.answer(move |_| reply.clone());
        let prefix = if says.contains("begin") { "a" } else { "" };
        let error = store.list_all(prefix, What::Keys).await.expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
        let expected = if says == "AccessDenied" { Kind::Unauthorized } else { Kind::Unavailable };
        assert_eq!(error.kind(), expected, "{error}");
    }
    server.answer(|_| {
        let token = "</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
        Reply::ok(listed(&[]).replace(">false</IsTruncated>", &format!(">true{token}")))
    });
    let error = store.list_all("", What::Keys).await.unwrap_err();
    assert!(error.to_string().contains("does not go on"), "one page for ever: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_is_gone_when_the_server_itself_says_so_and_lists_it_no_more() {
    let (server, store) = bucket(Access::Read).await;
    let told = |status: u16, body: &'static str| {
        server.answer(move |request| match &request.path[..] {
            _ if is_listing(request) && request.path.contains("prefix=a") => Reply::ok(listed(&["a"])),
            _ if is_listing(request) => Reply::ok(listed(&["a", "b"])),
            "/bucket/a" => Reply::status(status).body(body),
            _ => object(request),
        });
    };
    for (status, body) in [(404, PAGE), (404, ""), (206, "x"), (202, "x")] {
        told(status, body);
        let listing = store.list_all("", What::Values).await.unwrap_err();
        assert_eq!(listing.kind(), Kind::Unavailable, "{listing}");
        let reading = store.get_one("a").await.unwrap_err();
        assert!(reading.to_string().contains(&status.to_string()), "{reading}");
        assert!(reading.remedy().contains("endpoint"), "{}", reading.remedy());
    }
    told(404, NO_KEY);
    assert!(store.get_one("a").await.unwrap().is_none());
    let error = store.list_all("", What::Values).await.unwrap_err();
    assert!(error.to_string().contains("a is listed, and the server says that it is not there"), "{error}");
    server.answer(|request| match &request.path[..] {
        _ if is_listing(request) && request.path.contains("prefix=a") => Reply::ok(listed(&["a.txt"])),
        _ if is_listing(request) => Reply::ok(listed(&["a", "b"])),
        "/bucket/a" => Reply::status(404).body(NO_KEY),
        _ => object(request),
    });
    let left = store.list_all("", What::Values).await.unwrap();
    assert_eq!(left.iter().map(|line| line.key.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_counts_as_deleted_because_something_in_between_does_not_know_it() {
    let (server, store) = bucket(Access::Write).await;
    server.answer(|request| match request.method.as_str() {
        "HEAD" => Reply::status(404),
        _ => Reply::status(404).body(PAGE),
    });
    let error = store.write_one(Item::delete("a")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    server.answer(|request| match request.method.as_str() {
        "POST" => Reply::ok(PAGE),
        _ => object(request),
    });
    let error = store.write_one(Item::delete("a")).await.unwrap_err();
    assert!(error.to_string().contains("200 with <html> instead of word of what was deleted"), "{error}");
    server.answer(|request| match request.method.as_str() {
        "HEAD" => Reply::status(404),
        _ => Reply::status(404).body(NO_KEY),
    });
    assert_eq!(store.write_one(Item::delete("a")).await.unwrap(), Outcome::AlreadySo(None));
}
