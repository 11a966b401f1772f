"""Random training programs, run eagerly and through lowtide: equal, refused in one sentence, or a finding."""
