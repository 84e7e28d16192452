"""Declarations of ``curtilage policy``."""

from curtilage.cli.declared import Run, command, group
from curtilage.cli.options import JSON, POLICY


@group("policy", offline=True)
def policy() -> None:
    """Check, explain, test, compare, report and sign policies.

    Work with policies: files, or shipped profiles by name.

    Example:
        curtilage policy list
        curtilage policy check clinic.yaml
        curtilage policy explain - < letter.txt
        curtilage policy report --policy clinic --out clinic.html
    """


@command("check", policy, JSON, one_of=("FILE", "--policy"))
def policy_check() -> Run:
    """Find every problem of a policy, with its line.

    Load a policy, compile its patterns, look for the files and the model that it names,
    and print every problem with its line, or a summary.

    Options:
        [FILE]: policy file, or a shipped profile (default: the default profile)
        --policy FILE: the same, as elsewhere

    Example:
        curtilage policy check clinic.yaml
        curtilage policy check
    """
    from curtilage.cli.policy.command import run_check

    return run_check


@command("approve", policy, POLICY, JSON)
def policy_approve() -> Run:
    r"""Approve a system prompt after review.

    Inspect a text, show the findings, and add its SHA-256 to the policy: findings in
    exactly this text, in this role, then no longer decide. It is still sealed and still
    inspected. Exits with 1, and changes nothing, for findings that no approval sets
    aside: secrets, numbers with a valid check digit, what cannot be inspected, and what
    the policy blocks.

    Options:
        FILE: the text, UTF-8, as it is sent
        --role system|developer = system: the role in which it is sent
        --by NAME: who reviewed it (default: $USER)
        --note TEXT: a note by the approver
        --without-last-newline: omit the file's last line feed, which editors add and
            applications do not send
        --with-people: approve it although it identifies a person
        --print: print the entry, and change no file

    Example:
        curtilage policy approve prompt.txt --policy mine.yaml
        curtilage policy approve prompt.txt --policy mine.yaml --role developer \
          --by "A. Weber" --note "no data of patients"
    """
    from curtilage.cli.policy.approve import run

    return run


@command("test", policy, POLICY, JSON)
def policy_test() -> Run:
    """Decide cases, and compare with their expected routes.

    A failed case is reported by its id, never by its text. A file is YAML:

      version: 1
      cases:
      - {id: card, text: "Pay with 4111 1111 1111 1111", route: local}
      - id: two-turns
        messages: [{role: user, content: "What is HIV?"}]
        route: {clinic: local, else: enclave}   # by the name of the policy
        rules: [phi]                            # optional: these must fire
        classes: [topic.health]                 # optional: these must be found
      known_misses: []                          # cases that are known to fail

    or, if its name ends in .jsonl, one JSON object per line with the same keys. Without
    a file, the cases of the shipped profiles are used. Exits with 1 if a case fails, or
    if a known miss passes.

    Options:
        [FILE]: cases (default: the shipped ones)

    Example:
        curtilage policy test mine.cases.yaml --policy mine.yaml
        curtilage policy test --policy clinic
    """
    from curtilage.cli.policy.test_cases import run

    return run


@command("diff", policy, JSON)
def policy_diff() -> Run:
    """Show which queries another policy would route differently.

    Decide every line of a corpus ({"id", "text"} or {"id", "messages"}) under two
    policies, and show which queries would take another route, by which rule, never
    their texts. If a key is given, a policy without its signature (FILE.sig) keeps
    everything local, as in use.

    Options:
        OLD: policy file, or the name of a shipped profile
        NEW: the policy to compare with it
        --corpus FILE, required: JSON lines, one query each
        --policy-key FILE: public key (PEM) that must have signed both (default:
            $CURTILAGE_POLICY_KEY)

    Example:
        curtilage policy diff default clinic --corpus queries.jsonl
        curtilage policy diff old.yaml new.yaml --corpus queries.jsonl --json
    """
    from curtilage.cli.policy.diff import run

    return run


@command("report", policy, POLICY)
def policy_report() -> Run:
    r"""Write a policy as one page for people.

    Write one HTML page: the rules in words, who receives what, what laws and standards
    list, and how well the policy works. The page needs no network, no script and no
    other file.

    Options:
        --evaluation FILE: output of `curtilage evaluate --json`
        --out FILE, required: the HTML file

    Example:
        curtilage policy report --policy clinic --out clinic.html
        curtilage evaluate --data data --policy clinic --json figures.json
        curtilage policy report --policy clinic --evaluation figures.json \
          --out clinic.html
    """
    from curtilage.cli.policy.report import run

    return run


@command("keygen", policy)
def policy_keygen() -> Run:
    """Make a key that signs policies.

    Write a new Ed25519 private key to KEY.pem, and its public key to KEY.pub.pem. Keep
    the first where policies are approved; give the second to every client. No file is
    overwritten.

    Options:
        KEY.pem as file: file for the private key

    Example:
        curtilage policy keygen approvals.pem
    """
    from curtilage.cli.policy.sign import run_keygen

    return run_keygen


@command("custody", policy)
def policy_custody() -> Run:
    r"""Sign a list of machines that you answer for.

    Write the list that a policy names under `attestation.custody`, and print the key
    for it. Machines are named as `attest verify-evidence` prints them (`platform`): a
    chip id, a PPID, or a Nitro instance. After --until the list shows nothing: sign the
    next one before.

    Options:
        MACHINE... as machines: chip ids, PPIDs or Nitro instances
        --key KEY.pem, required: private key, Ed25519, as `policy keygen` makes it
        --name NAME, required: the custodian's name, without spaces
        --until TIME, required: its end: 2027-06-30T00:00:00Z, or +180d from now
        --out FILE, required: the list

    Example:
        curtilage policy custody --key custody.pem --name custody.example.com \
          --until +180d --out machines.txt i-0123456789abcdef0
    """
    from curtilage.cli.policy.custody import run

    return run


@command("sign", policy)
def policy_sign() -> Run:
    """Sign a policy for a number of days.

    Check a policy, as `curtilage policy check` does on this machine, and write its
    signature to FILE.sig. A client with the public key (--policy-key) sends nothing if
    the signature is missing, for another policy or key, or expired.

    Options:
        FILE: policy file
        --key KEY.pem, required: private key, Ed25519
        --valid-days N = 90: how long it is valid, from now (1 to 3660)

    Example:
        curtilage policy sign --key approvals.pem clinic.yaml
        curtilage policy sign --key approvals.pem --valid-days 30 clinic.yaml
    """
    from curtilage.cli.policy.sign import run_sign

    return run_sign


@command("verify", policy, JSON)
def policy_verify() -> Run:
    """Check that a policy is signed and current.

    Check a policy's signature (FILE.sig) against a public key and the clock. Exits with
    1 if a client that requires the signature would send nothing.

    Options:
        FILE: policy file
        --key PUB.pem, required: public key, Ed25519

    Example:
        curtilage policy verify --key approvals.pub.pem clinic.yaml
    """
    from curtilage.cli.policy.sign import run_verify

    return run_verify


@command("list", policy, JSON)
def policy_list() -> Run:
    """List the shipped profiles and their packs, or print one to start from.

    Options:
        [NAME]: a profile, to print it

    Example:
        curtilage policy list
        curtilage policy list clinic > mine.yaml
    """
    from curtilage.cli.policy.command import run_list

    return run_list


@command("list-make", policy, JSON)
def policy_list_make() -> Run:
    r"""Make an exact list from a table.

    An exact list (a detector of kind edm) holds keyed digests of the table's values, 8
    bytes each, from which the values cannot be read. HOW defines when two values are
    equal: text (letters and digits, ignoring case), digits (ignoring leading
    zeros and separators) or date (the same day in any notation).

    Omitted and counted: values that are empty or too short (under 4 characters, under 6
    digits), a single ordinary word or given name, invalid dates or digits, and values
    of more than 8 words. The table is read row by row and may be larger than the
    memory.

    Options:
        CSV as file: the table; - reads standard input
        --out FILE, required: the list
        --column NAME[:HOW]...: values of this column count by themselves; repeatable
        --together NAME[:HOW],NAME[:HOW]...: two or three columns; the values of one row
            count if they occur near each other; repeatable
        --near N = 200: maximum distance in characters (1 to 1000)
        --salt-file FILE: file with the salt in hexadecimal, so that a rebuilt list fits
            the policy; created if missing (default: a new salt, which is printed)
        --delimiter C = ,: column separator
        --encoding NAME = utf-8: encoding of the table
        --no-header: the first row is data; columns are 1, 2, 3 …

    Example:
        curtilage policy list-make patients.csv --out patients.exact \
          --column mrn --together surname,birth_date:date
    """
    from curtilage.cli.policy.list_make import run

    return run
