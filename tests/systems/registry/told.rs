//! The registry as the demo tells it.

use crate::cli::home::Home;

#[test]
fn the_demo_follows_a_repository_and_works_on_its_queue() {
    let home = Home::new("");
    let told = home.run(&["demo"]).ends(0);
    for said in [
        "$ trueup kv get registry queue:admission",
        "\"operation\":\"add\"",
        "$ trueup queue take",
        "policy:admission is done.",
        "policy:tuition",
    ] {
        assert!(told.out.contains(said), "nothing about {said} in:\n{}", told.out);
    }
    let steps = home.run(&["demo", "--json"]).ends(0).json();
    let commands = steps["demo"].as_array().unwrap();
    assert!(commands.iter().any(|step| step["command"] == "queue done policy:admission"), "{steps}");
}

#[test]
fn without_git_the_demo_says_so_and_goes_on() {
    let home = Home::new("");
    // A machine with a shell and nothing else.
    home.write("bin/.keep", "");
    std::os::unix::fs::symlink("/bin/sh", home.path("bin/sh")).unwrap();
    let told = home.command(&["demo"]).env("PATH", home.path("bin")).output().unwrap();
    let said = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success() && said.contains("git is not installed here"), "{said}");
    assert!(said.contains("$ trueup page analyze anna"), "the story goes on: {said}");
}
