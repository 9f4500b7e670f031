//! Names and values of others hold whatever they like; what people see of them is letters.

use std::fs;

use super::home::Home;

const NAME: &str = "x\u{1b}[2J\u{7}\u{9b}y";

#[test]
fn control_characters_are_spelled_out_for_people_and_kept_for_programs() {
    let home = Home::with_notes(0);
    home.write(&format!("notes/{NAME}"), "a \u{1b}[31mred\u{1b}[0m value\n");
    home.write("notes/two\nlines", "1\n");
    let spelled = r"x\u{1b}[2J\u{7}\u{9b}y";
    let plan = home.run(&["plan"]).ends(0).out;
    assert!(plan.contains(spelled) && plan.contains(r"two\nlines"), "{plan}");
    home.run(&["sync"]).ends(0);
    home.write(&format!("notes/{NAME}"), "another \u{1b}[31mred\u{1b}[0m value\n");
    std::os::unix::fs::symlink("nowhere", home.path("notes/bad\u{1b}one")).unwrap();
    home.run(&["kv", "put", "registry", NAME, "edited"]).ends(0);
    let ways: [&[&str]; 6] =
        [&["audit"], &["plan"], &["sync"], &["kv", "ls", "registry"], &["why", NAME], &["why", "\u{1b}c"]];
    for args in ways {
        let ran = home.run(args);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(!said.contains(|letter: char| letter.is_control() && letter != '\n'), "{args:?}: {said:?}");
        assert!(said.contains(r"\u{"), "{args:?}: {said}");
    }
    assert_eq!(home.run(&["kv", "ls", "registry"]).out.lines().count(), 2, "one key, one line");
    assert!(home.keys("registry").contains(&NAME.to_owned()), "JSON tells it as it is");
    let value = home.run(&["kv", "get", "registry", NAME]).ends(0).out;
    assert_eq!(value, "another \u{1b}[31mred\u{1b}[0m value\n", "so does a value that is asked for");
}

#[test]
fn a_mark_of_the_encoding_is_no_column() {
    let config = "frm = 1\n";
    let home = Home::new(config);
    let plain = home.run(&["check"]).ends(2).err;
    fs::write(home.path("trueup.toml"), format!("\u{feff}{config}")).unwrap();
    assert_eq!(home.run(&["check"]).ends(2).err, plain);
    assert!(plain.contains("trueup.toml:1:1:"), "{plain}");
}
