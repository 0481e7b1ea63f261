use super::*;

fn records(folder: &Path, policy: Verification) -> PullRecords {
    PullRecords::open(folder, policy, Clock::default()).expect("a folder")
}

fn credential(name: &str, hash: &str) -> Credential {
    let secret = PullSecret {
        uid: format!("uid-of-{name}"),
        namespace: "n".to_owned(),
        name: name.to_owned(),
        credential_hash: hash.to_owned(),
    };
    Credential { auth: v1::AuthConfig::default(), secret }
}

const IMAGE: &str = "registry.test:5000/team/app:1";

#[test]
fn an_image_is_for_those_who_pulled_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().canonicalize().expect("a path");
    let known = records(&at, Verification::default());
    let (mine, yours) = (credential("mine", "a"), credential("yours", "b"));
    assert!(known.allows(IMAGE, "id", &[]), "it was there before");
    known.begin(IMAGE).expect("written");
    assert!(!known.allows(IMAGE, "id", std::slice::from_ref(&mine)), "nobody has pulled it yet");
    known.succeeded(IMAGE, "id", Some(&mine));
    let check = |known: &PullRecords, image: &str, credentials: &[&Credential], want: bool| {
        let owned: Vec<Credential> = credentials.iter().map(|one| (*one).clone()).collect();
        assert_eq!(known.allows(image, "id", &owned), want, "{image} {credentials:?}");
    };
    check(&known, IMAGE, &[], false);
    check(&known, IMAGE, &[&yours], false);
    check(&known, IMAGE, &[&yours, &mine], true);
    check(&known, "registry.test:5000/team/app:2", &[&mine], true);
    check(&known, "other.test/app:1", &[&mine], false);
    // The same secret with another password, and the same password in another secret.
    check(&known, IMAGE, &[&credential("mine", "c")], true);
    check(&known, IMAGE, &[&credential("copy", "c")], true);
    check(&known, IMAGE, &[&credential("stranger", "a")], false);
    check(&records(&at, Verification::default()), IMAGE, &[&credential("copy", "c")], true);
    // Nobody had to show anything for it.
    known.succeeded(IMAGE, "id", None);
    check(&known, IMAGE, &[], true);
    known.keep_only(&BTreeSet::from(["other"]), Timestamp::MAX);
    assert_eq!(files(&at.join("image_manager/pulled")).len(), 0);
    assert_eq!(files(&at.join("image_manager/pulling")).len(), 0);
}

#[test]
fn a_pull_that_was_cut_short_gives_nothing_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().canonicalize().expect("a path");
    records(&at, Verification::default()).begin(IMAGE).expect("written");
    let after = records(&at, Verification::default());
    let there = v1::Image { id: "id".into(), repo_tags: vec![IMAGE.to_owned()], ..v1::Image::default() };
    after.recover(&[there]);
    assert!(!after.allows(IMAGE, "id", &[]));
    assert!(after.allows("preloaded:1", "other", &[]));
    // A record that is spoilt allows nobody.
    after.succeeded(IMAGE, "id", None);
    assert!(after.allows(IMAGE, "id", &[]));
    fs::write(after.record("id"), "{").expect("written");
    assert!(!after.allows(IMAGE, "id", &[]));
    after.begin("failing:1").expect("written");
    after.failed("failing:1");
    assert!(after.allows("failing:1", "another", &[]));
}

#[test]
fn policies_say_which_images_are_asked_about() {
    let list = ["registry.test/open/*", "busybox"].map(str::to_owned);
    let check = |name: &str, allowed: &[String], want: [bool; 4]| {
        let policy = Verification::parse(name, allowed).expect("a policy");
        assert_eq!(policy.name(), name);
        let cases = [("a:1", false), ("a:1", true), ("registry.test/open/b@sha256:0", true), ("busybox:1", true)];
        assert_eq!(cases.map(|(image, pulled)| policy.asks(image, pulled)), want, "{name}");
    };
    check("NeverVerify", &[], [false, false, false, false]);
    check("NeverVerifyPreloadedImages", &[], [false, true, true, true]);
    check("AlwaysVerify", &[], [true, true, true, true]);
    check("NeverVerifyAllowlistedImages", &list, [true, true, false, false]);
    assert!(Verification::parse("Sometimes", &[]).is_err());
    assert!(Verification::parse("AlwaysVerify", &list).is_err());
    for bad in ["*", "a*", "a:1", "a@sha256:0", ""] {
        assert!(Verification::parse("NeverVerifyAllowlistedImages", &[bad.to_owned()]).is_err(), "{bad}");
    }
}
