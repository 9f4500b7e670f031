//! Articles in a store that something else writes into, too.

use super::desk::{feed, item};
use crate::cli::home::Home;
use crate::support::http::{Reply, Server};

#[test]
fn articles_and_exported_policies_share_a_folder_and_leave_each_other_alone() {
    let news = feed(&item("7", "2025-10-16", "<p>x</p>"));
    let server = Server::start(move |_| Reply::ok(news.clone()));
    let home = Home::new(&format!(
        "[pipelines.rules]\nfrom = {{ files = \"rules\" }}\nas = \"policy\"\ninto = \"sqlite:rules.db\"\n\
         then = {{ export = \"file:bucket\" }}\n\
         [pipelines.notices]\nfrom = {{ rss = \"{}\", boards = \"25\" }}\nas = \"article\"\ninto = \"file:bucket\"\n",
        server.url("/rss?b={board}")
    ));
    for name in ["a", "b"] {
        home.write(&format!("rules/{name}.md"), &format!("# Rule {name}\n"));
    }
    home.run(&["sync"]).ends(0);
    let both = ["policies/a/policy.md", "policies/b/policy.md", "rss/25/2025_10_16_7.md"];
    assert_eq!(home.keys("file:bucket"), both);
    let runs = home.run(&["sync", "--json"]).ends(0).json();
    for run in runs["runs"].as_array().unwrap() {
        assert_eq!(
            (&run["added"], &run["updated"], &run["deleted"]),
            (&0.into(), &0.into(), &0.into()),
            "{run}"
        );
    }
    home.remove("rules/b.md");
    home.run(&["sync"]).ends(0);
    assert_eq!(home.keys("file:bucket"), [both[0], both[2]]);
    home.run(&["audit", "--repair"]).ends(0);
    assert_eq!(home.keys("file:bucket"), [both[0], both[2]]);
}
