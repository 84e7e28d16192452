"""What an auditor reads and what follows from it: classes, rules, decision."""
