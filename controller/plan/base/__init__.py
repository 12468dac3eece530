"""What all deciders share: context, claim, decision and plan under construction, memo, back-off. No decisions."""
